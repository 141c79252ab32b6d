"""What a job says and refuses of the shared pool that it names."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.spec.pool_status import (
    AssignmentStatus,
    SamplerPoolStatus,
    ScaleStatus,
    WaitingStatus,
)
from rl_contracts.spec.resources import SamplerPoolSpec
from rl_contracts.spec.status import Condition, RLJobStatus
from rl_contracts.spec.workers import SamplerTemplate
from rl_operator.attempts import start_gate
from rl_operator.kube import names
from rl_operator.kube.conditions import ConditionUpdate, Stall
from rl_operator.kube.kinds import Key
from rl_operator.kube.timestamps import format_time
from rl_operator.pools.scaling import history
from rl_operator.render.objects import spec_config
from rl_operator.render.samplers import deployment
from rl_operator.state import pool_ref
from rl_operator.state.snapshot import JobSnapshot, Pool, PoolSnapshot
from rl_operator.status import pool_wait
from rl_operator.status.status_input import StatusInput
from rl_sampler.engine.assignment import load_assignment
from tests.unit.rl_operator.builders import (
    IMAGES,
    NOW,
    RUN,
    a_job_object,
    a_meta,
    a_reading,
    a_snapshot,
)

GROUPS = [{"name": "main", "poolRef": {"name": "shared"}}]
SINCE = format_time(NOW - 60)
MINE = AssignmentStatus(job="job", uid=RUN, run=RUN, since=SINCE)
OTHERS = AssignmentStatus(job="other", uid="u2", run="u2", since=SINCE)


def a_pool(**status: Any) -> Pool:
    spec = {"model": {"uri": "s3://rl-data/models/arithmetic"}, "replicas": 3}
    return Pool(
        meta=a_meta("shared", uid="p"),
        spec=SamplerPoolSpec.model_validate(spec),
        spec_error="",
        status=SamplerPoolStatus(**status),
    )


def a_waiting_job(pool: Pool | None, *, asked: bool = True, **job: Any) -> JobSnapshot:
    condition = Condition(
        type="PoolAssigned",
        status="False",
        reason="WaitingForPool" if pool else "PoolNotFound",
        message="No pool.",
        last_transition_time=SINCE,
        observed_generation=1,
    )
    status = RLJobStatus(conditions=[condition] if asked else [])
    job_object = pool_ref.resolved(a_job_object(status, samplers=GROUPS, **job), pool)
    holds = pool is not None and MINE in pool.holders
    pools = (pool,) if pool is not None and holds else ()
    return dataclasses.replace(a_snapshot(), job=job_object, shared=pool, pools=pools)


def wait_conditions(snapshot: JobSnapshot, **status_input: Any) -> list[ConditionUpdate]:
    seen = StatusInput(snapshot=snapshot, reading=a_reading(), now=NOW, **status_input)
    return pool_wait.conditions(seen, snapshot.job.status)


def test_waiting_job_shows_holder_and_position() -> None:
    waiting = [WaitingStatus(job=name, since=SINCE) for name in ("first", "job")]
    pool = a_pool(assignment=OTHERS, waiting=waiting, waiting_jobs=7)
    (condition,) = wait_conditions(a_waiting_job(pool))
    assert (condition.type, condition.status, condition.reason) == (
        "PoolAssigned",
        "False",
        "WaitingForPool",
    )
    assert condition.message == (
        f"SamplerPool shared serves RLJob other since {SINCE}. This job is number 2 of 7 that wait."
    )


def test_waiting_job_shows_why_it_cannot_join() -> None:
    why = "spec.maxRuns of the pool is 2"
    waiting = [WaitingStatus(job="job", since=SINCE, why=why)]
    third = AssignmentStatus(job="third", uid="u3", run="u3", since=SINCE)
    pool = a_pool(assignment=OTHERS, beside=[third], waiting=waiting, waiting_jobs=1)
    (condition,) = wait_conditions(a_waiting_job(pool))
    assert condition.message == (
        f"SamplerPool shared serves RLJob other since {SINCE} and RLJob third since {SINCE}. This "
        f"job is number 1 of 1 that wait. It waits until they release it: {why}."
    )


def test_holder_shows_the_other_holders() -> None:
    (condition,) = wait_conditions(a_waiting_job(a_pool(assignment=OTHERS, beside=[MINE])))
    assert (
        condition.message
        == f"SamplerPool shared serves this run since {SINCE}, beside RLJob other."
    )


def test_holder_is_assigned() -> None:
    (condition,) = wait_conditions(a_waiting_job(a_pool(assignment=MINE)))
    assert (condition.status, condition.reason) == ("True", "Assigned")


STALL = Stall(reason="DatasetNotFound", message="There is none.")
SILENT: dict[str, tuple[JobSnapshot, dict[str, Any]]] = {
    "it is suspended": (a_waiting_job(a_pool(), suspend=True), {}),
    "its inputs are bad": (a_waiting_job(a_pool()), {"stall": STALL}),
    "its inputs are looked at": (a_waiting_job(a_pool(), asked=False), {"checking": True}),
}


@pytest.mark.parametrize(("snapshot", "status_input"), SILENT.values(), ids=SILENT.keys())
def test_job_that_cannot_use_the_pool_does_not_ask_for_it(
    snapshot: JobSnapshot, status_input: dict[str, Any]
) -> None:
    assert wait_conditions(snapshot, **status_input) == []


def test_checking_inputs_keeps_the_place_in_the_queue() -> None:
    (condition,) = wait_conditions(a_waiting_job(a_pool()), checking=True)
    assert condition.reason == "WaitingForPool"


def test_a_missing_pool_stalls_in_the_end() -> None:
    snapshot = a_waiting_job(None, lifecycle={"pendingDeadlineSeconds": 60})
    spec = snapshot.job.spec
    assert spec is not None
    assert pool_wait.stall(snapshot, spec, now=NOW) is None
    stall = pool_wait.stall(snapshot, spec, now=NOW + 1)
    assert stall is not None
    assert (stall.reason, "pendingDeadlineSeconds = 60" in stall.message) == ("PoolNotFound", True)


def test_samplers_are_waited_for_from_the_assignment_on() -> None:
    waiting, has = (a_waiting_job(a_pool(assignment=assignment)) for assignment in (OTHERS, MINE))
    for snapshot, since, minimum in ((waiting, None, 1), (has, NOW - 60, 1)):
        assert snapshot.job.spec is not None
        assert start_gate.waits_since(snapshot) == since
        (shortfall,) = start_gate.find_shortfalls(snapshot, snapshot.job.spec, a_reading())
        assert (shortfall.registered, shortfall.minimum) == (0, minimum)


def test_samplers_read_the_template_of_their_pool(tmp_path: Path) -> None:
    """Of all that the job mounts, they are told this alone by the pool."""
    pool = a_pool(assignment=MINE)
    assert pool.spec is not None
    spec = pool.spec.model_copy(update={"template": SamplerTemplate(max_concurrent_groups=7)})
    job = a_waiting_job(dataclasses.replace(pool, spec=spec)).job
    assert job.spec is not None
    (tmp_path / "rljob.json").write_text(
        spec_config(job.meta, job.spec, name="x")["data"]["rljob.json"]
    )
    pods = deployment.render(
        pool.meta, spec, job=job.meta, job_spec=job.spec, replicas=1, images=IMAGES, epoch=3
    )
    assert pods["metadata"]["annotations"][names.ASSIGNMENT_ANNOTATION] == "3"
    (agent,) = pods["spec"]["template"]["spec"]["containers"]
    environ = {variable["name"]: variable.get("value", "of the pod") for variable in agent["env"]}
    read = load_assignment({**environ, "RL_SPEC_FILE": str(tmp_path / "rljob.json")})
    assert (read.env.pool, read.template) == ("main", spec.template)


def test_scale_history_of_an_earlier_run_is_ignored() -> None:
    before, after = (
        ScaleStatus(time=format_time(at), before=1, after=2, reason="TrainerWaits")
        for at in (NOW - 100, NOW - 20)
    )
    key = Key("SamplerPool", "ns", "shared")
    for given, known in ((MINE, [after]), (None, [before, after])):
        pool = a_pool(assignment=given, last_scale=[before, after])
        assert history(PoolSnapshot(key=key, pool=pool, job=None)) == known


def test_a_group_is_found_by_the_pool_that_it_shares() -> None:
    spec = a_waiting_job(a_pool()).job.spec
    assert spec is not None
    assert names.pool_of("job", spec.samplers[0]) == "shared"
    assert names.group("job", spec, "shared") == "main"
    assert pool_ref.place(0, spec.samplers[0]) == "SamplerPool shared spec.template"
