"""A pool that waits for somebody to act: the job says why, of its own pool and of a shared one."""

from __future__ import annotations

import dataclasses

import pytest

from rl_contracts.spec.pool_status import SamplerPoolStatus
from rl_contracts.spec.status import Condition, RLJobStatus
from rl_operator.attempts.start_gate import SamplerShortfall
from rl_operator.kube.conditions import find
from rl_operator.kube.timestamps import format_time
from rl_operator.state.snapshot import Pool
from rl_operator.status import pool_wait
from rl_operator.status.job_conditions import compute
from rl_operator.status.status_input import StatusInput
from tests.unit.rl_operator.builders import NOW, a_job_object, a_pod, a_reading, a_snapshot
from tests.unit.rl_operator.status_inputs import POOLS

DENIED = "The API server refused to create Deployment job-main: you must provide label team"
SAID = f"SamplerPool job-main is Stalled (ChildRefused): {DENIED}"


def stalled(pool: Pool) -> Pool:
    """The pool as a policy of the cluster leaves it."""
    condition = Condition(
        type="Stalled",
        status="True",
        reason="ChildRefused",
        message=DENIED,
        last_transition_time=format_time(NOW),
        observed_generation=1,
    )
    return dataclasses.replace(pool, status=SamplerPoolStatus(conditions=[condition]))


@pytest.mark.parametrize("kind", ["Ready", "SamplersReady"])
def test_a_job_that_waits_for_its_samplers_says_why_their_pool_is_stalled(kind: str) -> None:
    snapshot = a_snapshot(RLJobStatus(), pools=(stalled(POOLS[0]),))
    missing = SamplerShortfall(group="main", registered=0, minimum=2)
    seen = StatusInput(snapshot=snapshot, reading=a_reading(), now=NOW, shortfalls=(missing,))
    condition = find(compute(seen).conditions, kind)
    assert condition is not None
    assert (condition.status, SAID in condition.message) == ("False", True), condition


def test_a_job_whose_samplers_run_says_why_an_edit_does_not_reach_them() -> None:
    started = RLJobStatus(attempt=1, start_time=format_time(NOW))
    pods = (a_pod(), a_pod("sampler"))
    snapshot = a_snapshot(started, pools=(stalled(POOLS[0]),), pods=pods)
    seen = StatusInput(snapshot=snapshot, reading=a_reading(), now=NOW)
    condition = find(compute(seen).conditions, "SamplersReady")
    assert condition is not None
    assert (condition.status, condition.message) == ("True", f"All sampler pods are ready. {SAID}")


def test_a_job_that_waits_for_a_shared_pool_says_why_that_is_stalled() -> None:
    job = a_job_object(samplers=[{"name": "main", "poolRef": {"name": "job-main"}}])
    snapshot = dataclasses.replace(a_snapshot(job=job), shared=stalled(POOLS[0]))
    seen = StatusInput(snapshot=snapshot, reading=a_reading(), now=NOW)
    (condition,) = pool_wait.conditions(seen, job.status)
    assert condition.reason == "WaitingForPool"
    assert condition.message.endswith(SAID)
