"""A job is reconciled again at its deadlines by exact time, and rarely while it is at rest."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_contracts.documents.run import Outcome
from rl_contracts.spec.status import Condition, RLJobStatus
from rl_operator.apply.requeue import RESYNC_SECONDS, SOON_SECONDS, STALLED_SECONDS
from rl_operator.attempts.ends import seconds_left
from rl_operator.attempts.lifecycle import decide
from rl_operator.jobs.deadlines import after_end, is_at_rest, requeue_after, seconds_to_deadline
from rl_operator.kube.conditions import Stall
from rl_operator.kube.timestamps import format_time
from rl_operator.kueue.admission import Hold
from rl_operator.state.decisions import Begin, Ended, Wait
from rl_operator.state.pod import Pod
from rl_operator.state.snapshot import Pool
from rl_operator.status.status_input import StatusInput
from tests.unit.rl_operator.builders import (
    NOW,
    a_job_object,
    a_pod,
    a_reading,
    a_run_document,
    a_snapshot,
    a_spec,
    a_view,
)
from tests.unit.rl_operator.status_inputs import POOLS

RUNNING = Wait(why="Running")
QUEUED = {"provider": "Kueue", "queueName": "q"}
READY = RLJobStatus(
    observed_generation=1,
    attempt=1,
    conditions=[
        Condition(
            type="Ready",
            status="True",
            reason="Running",
            observed_generation=1,
            last_transition_time=format_time(NOW),
        )
    ],
)


def an_input(**changes: Any) -> StatusInput:
    values: dict[str, Any] = {"snapshot": a_snapshot(READY), "decision": RUNNING, "now": NOW}
    return StatusInput(reading=a_reading(), **{**values, **changes})


JOBS: dict[str, tuple[dict[str, Any], bool]] = {
    "it runs": ({}, True),
    "it is not ready": ({"snapshot": a_snapshot()}, False),
    "it waits": ({"decision": Wait(why="Inputs")}, False),
    "it begins": ({"decision": Begin(attempt=2)}, False),
    "it is over": ({"decision": None}, False),
    "it is stalled": ({"stall": Stall(reason="X", message="x")}, False),
    "something cannot be made for now": ({"blocked_reason": "a webhook"}, False),
    "its queue holds it back": ({"hold": Hold(reason="X", message="x")}, False),
    "a queue may hold it back": (
        {"snapshot": a_snapshot(job=a_job_object(READY, scheduling=QUEUED))},
        False,
    ),
    "its spec cannot be read": (
        {"snapshot": a_snapshot(job=dataclasses.replace(a_job_object(READY), spec=None))},
        False,
    ),
}


@pytest.mark.parametrize(("changes", "rests"), JOBS.values(), ids=JOBS.keys())
def test_only_a_ready_job_that_runs_is_at_rest(changes: dict[str, Any], rests: bool) -> None:
    assert is_at_rest(an_input(**changes)) is rests


def again(
    status_input: StatusInput,
    check_inputs_after: float | None = None,
    *,
    status_changed: bool = False,
) -> float:
    return requeue_after(
        status_input,
        a_view(lifecycle=a_spec(lifecycle={"progressDeadlineSeconds": 7200}).lifecycle),
        status_changed=status_changed,
        check_inputs_after=check_inputs_after,
        progress_seconds=5.0,
    )


def test_job_at_rest_waits_for_a_resync_and_others_for_two_polls() -> None:
    assert again(an_input()) == RESYNC_SECONDS
    assert again(an_input(snapshot=a_snapshot())) == 10.0


def test_reconcile_that_changes_the_status_is_followed_by_another() -> None:
    assert again(an_input(), status_changed=True) == 10.0


def test_attempt_that_begins_is_continued_at_once() -> None:
    assert again(an_input(decision=Begin(attempt=1))) == 0.0


def test_inputs_are_checked_again_when_that_is_due() -> None:
    assert again(an_input(snapshot=a_snapshot()), check_inputs_after=3.0) == 3.0


@given(
    active=st.none() | st.integers(1, 500),
    progress=st.integers(60, 500),
    ages=st.tuples(*[st.floats(0, 400)] * 3),
    store=st.floats(-1000, 1000),
    ended=st.booleans(),
    leaves=st.none() | st.floats(-400, 400),
)
def test_until_a_deadline_the_clock_decides_nothing(
    active: int | None,
    progress: int,
    ages: tuple[float, float, float],
    store: float,
    ended: bool,
    leaves: float | None,
) -> None:
    since, started, made = (NOW - age for age in ages)
    lifecycle = {"activeDeadlineSeconds": active, "progressDeadlineSeconds": progress}
    outcome = Outcome(kind="Failed", reason="X", message="x") if ended else None
    pod = a_pod(started_at=started)
    if leaves is not None:
        pod = dataclasses.replace(pod, deleting=True, gone_by=NOW + leaves)
    status = a_view().status.model_copy(update={"active_since": format_time(since)})
    view = a_view(
        status=status,
        lifecycle=a_spec(lifecycle={k: v for k, v in lifecycle.items() if v}).lifecycle,
        pods=(pod,),
        run=a_run_document(progress_at=made, heartbeat_at=made, outcome=outcome),
        store_now=NOW + store,
    )

    def after(seconds: float) -> object:
        return decide(dataclasses.replace(view, now=NOW + seconds, store_now=NOW + store + seconds))

    left = seconds_left(view)
    if left > 0.01:
        assert decide(view) == RUNNING
        assert after(min(left, 1e6) - 0.01) == RUNNING
        assert seconds_to_deadline(a_snapshot(status), view) <= left
    if not ended and math.isfinite(left) and left > 0:
        assert isinstance(after(left + 0.01), Ended)


@given(limit=st.integers(60, 500), age=st.floats(0, 400), present=st.booleans(), ran=st.booleans())
def test_pod_that_does_not_start_is_looked_at_by_its_deadline(
    limit: int, age: float, present: bool, ran: bool
) -> None:
    pod = a_pod(phase="Pending", ready=False, started_at=None, created_at=NOW - age)
    view = a_view(lifecycle=a_spec(lifecycle={"pendingDeadlineSeconds": limit}).lifecycle)
    assert view.trainer is not None
    trainer = dataclasses.replace(view.trainer, created_at=NOW - age)
    if ran:
        trainer = dataclasses.replace(trainer, created_at=NOW - age - 50, ran_at=NOW - age)
    view = dataclasses.replace(view, trainer=trainer, pods=(pod,) if present else (), run=None)
    left = seconds_to_deadline(a_snapshot(view.status), view)
    if decide(view) == RUNNING:
        assert left <= limit - age + 0.001
        late = dataclasses.replace(view, now=NOW + limit - age + SOON_SECONDS)
        assert isinstance(decide(late), Ended)


PROGRAM = (a_pod("program", name="job-main-programs-1"),)


@pytest.mark.parametrize(
    ("policy", "evicted", "pools", "own_pods", "seconds"),
    [
        ("Workers", False, POOLS, (), RESYNC_SECONDS),
        ("Workers", False, POOLS, PROGRAM, STALLED_SECONDS),
        ("None", False, POOLS, PROGRAM, RESYNC_SECONDS),
        ("None", False, (), PROGRAM, STALLED_SECONDS),  # somebody has deleted the pools
        ("None", True, POOLS, PROGRAM, STALLED_SECONDS),  # its queue wants the quota back
    ],
)
def test_finished_job_is_looked_at_soon_only_while_pods_of_programs_are_to_end(
    policy: str,
    evicted: bool,
    pools: tuple[Pool, ...],
    own_pods: tuple[Pod, ...],
    seconds: float,
) -> None:
    job = dataclasses.replace(a_job_object(lifecycle={"cleanupPolicy": policy}), evicted=evicted)
    snapshot = a_snapshot(job=job, pools=pools, own_pods=own_pods)
    assert after_end(snapshot, RESYNC_SECONDS) == seconds
