"""An elastic trainer's attempts are as large as fits, within their bounds, and grow again."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_contracts import env
from rl_contracts.spec.lifecycle import Lifecycle
from rl_contracts.spec.status import AttemptStatus, RLJobStatus
from rl_contracts.spec.workers import Elastic, Trainer
from rl_operator.attempts import sizing
from rl_operator.attempts.lifecycle import decide
from rl_operator.attempts.status import decided
from rl_operator.kube.timestamps import format_time
from rl_operator.render import job as desired
from rl_operator.state import attempt_records
from rl_operator.state.decisions import Begin, Decision, Ended, Halted, Wait
from rl_operator.state.pod import Pod
from rl_operator.status import job_conditions
from rl_operator.status.status_input import StatusInput
from tests.unit.rl_operator.builders import (
    IMAGES,
    NOW,
    a_job_object,
    a_pod,
    a_reading,
    a_snapshot,
    a_spec,
    a_trainer,
    a_view,
    an_ended_pod,
)

ELASTIC = Trainer(replicas=4, elastic=Elastic(min_replicas=2, max_replicas=6))
LIFECYCLE = Lifecycle()
LIMIT = LIFECYCLE.pending_deadline_seconds * sizing.WAIT_SHARE
UNFIT = "0/3 nodes are available: insufficient nvidia.com/gpu."


def trainer_pods(*, placed: int, size: int, attempt: int = 1) -> tuple[Pod, ...]:
    """Pods of an attempt of which some have found a node."""
    common: dict[str, Any] = {"phase": "Pending", "ready": False, "started_at": None}
    placed_pod = a_pod(**common, attempt=attempt, conditions=("PodScheduled",))
    unfit = a_pod(**common, attempt=attempt, unscheduled=UNFIT, created_at=NOW - LIMIT - 1)
    return (placed_pod,) * placed + (unfit,) * (size - placed)


def with_record(attempt: int = 1, **changes: Any) -> RLJobStatus:
    record = AttemptStatus(attempt=attempt, start_time=format_time(NOW), **changes)
    return RLJobStatus(attempt=attempt, attempts=[record])


NEXT: dict[str, tuple[Trainer, RLJobStatus, int]] = {
    "the first": (ELASTIC, RLJobStatus(), 4),
    "after a failure": (ELASTIC, with_record(replicas=4, result="Failed"), 6),
    "after a suspension": (ELASTIC, with_record(replicas=3, result="Suspended"), 6),
    "after one that did not fit": (
        ELASTIC,
        with_record(replicas=3, result="Ignored", reason=sizing.DOES_NOT_FIT),
        3,
    ),
    "bounds that have been narrowed": (
        ELASTIC,
        with_record(replicas=1, result="Ignored", reason=sizing.DOES_NOT_FIT),
        2,
    ),
    "not elastic": (Trainer(replicas=4), with_record(replicas=4, result="Failed"), 4),
    "no longer elastic": (
        Trainer(replicas=4),
        with_record(replicas=2, reason=sizing.DOES_NOT_FIT),
        4,
    ),
}


@pytest.mark.parametrize(("trainer", "status", "size"), NEXT.values(), ids=NEXT.keys())
def test_size_of_the_next_attempt(trainer: Trainer, status: RLJobStatus, size: int) -> None:
    assert sizing.of_next(trainer, status) == size


def test_attempt_without_recorded_size_has_the_declared_size() -> None:
    assert attempt_records.replicas(ELASTIC, with_record()) == 4
    assert attempt_records.replicas(ELASTIC, with_record(replicas=3)) == 3


WAITING: dict[str, tuple[dict[str, Any], int | None]] = {
    "some fit": ({"pods": trainer_pods(placed=3, size=4)}, 3),
    "fewer fit than there must be": ({"pods": trainer_pods(placed=0, size=4)}, 2),
    "all fit": ({"pods": trainer_pods(placed=4, size=4)}, None),
    "nobody has made its pods": ({"pods": ()}, None),
    "it is as small as it may be": (
        {"pods": trainer_pods(placed=1, size=2), "status": with_record(replicas=2)},
        None,
    ),
    "not elastic": ({"pods": trainer_pods(placed=3, size=4), "wishes": Trainer(replicas=4)}, None),
    "not for long": (
        {"pods": trainer_pods(placed=3, size=4), "trainer": a_trainer(created_at=NOW - LIMIT + 1)},
        None,
    ),
}


@pytest.mark.parametrize(("changes", "fitted"), WAITING.values(), ids=WAITING.keys())
def test_attempt_that_does_not_fit_is_followed_by_a_smaller_one(
    changes: dict[str, Any], fitted: int | None
) -> None:
    waited = {
        "status": with_record(replicas=4),
        "wishes": ELASTIC,
        "lifecycle": LIFECYCLE,
        "trainer": a_trainer(created_at=NOW - LIMIT - 1),
    }
    decision = decide(a_view(**{**waited, **changes}))
    if fitted is None:
        assert decision == Wait(why="Running")
        return
    assert isinstance(decision, Ended)
    assert (decision.fitted, decision.counts, decision.ignored) == (fitted, False, True)
    assert decision.failure.reason == sizing.DOES_NOT_FIT
    assert f"the next attempt has {fitted}" in decision.failure.message
    assert UNFIT in decision.failure.message


DECLARED = ELASTIC.model_dump(by_alias=True)
JOB, SPEC = a_job_object(trainer=DECLARED), a_spec(trainer=DECLARED)
PATIENT = Lifecycle(backoff_limit=100)


def after(status: RLJobStatus, decision: Decision) -> RLJobStatus:
    """The status that the operator writes."""
    snapshot = a_snapshot(job=dataclasses.replace(JOB, status=status))
    return job_conditions.compute(
        StatusInput(snapshot=snapshot, reading=a_reading(), decision=decision, now=NOW)
    )


def test_trainer_pods_match_the_recorded_size() -> None:
    status = with_record(replicas=3)
    snapshot = a_snapshot(job=dataclasses.replace(JOB, status=status))
    made = desired.wanted(snapshot, SPEC, checked=True, run_trainer=True, images=IMAGES)[-1]
    worker = made.manifest["spec"]["pytorchReplicaSpecs"]["Worker"]
    variables = worker["template"]["spec"]["containers"][0]["env"]
    assert worker["replicas"] == 3
    assert {"name": env.REPLICAS, "value": "3"} in variables
    assert made.manifest["spec"]["elasticPolicy"]["maxReplicas"] == 3


def begun(status: RLJobStatus, *, room: int) -> RLJobStatus:
    """Attempts begin until one fits, or is as small as may be."""
    while True:
        size = sizing.of_next(ELASTIC, status)
        status = after(status, Begin(attempt=status.attempt + 1, replicas=size))
        assert 2 <= attempt_records.replicas(ELASTIC, status) == status.trainer.desired == size <= 6
        context = a_view(
            status=status,
            wishes=ELASTIC,
            lifecycle=PATIENT,
            trainer=a_trainer(status.attempt, created_at=NOW - LIMIT - 1),
            pods=trainer_pods(placed=min(room, size), size=size, attempt=status.attempt),
        )
        decision = decide(context)
        if not isinstance(decision, Ended):
            return status
        assert decision.fitted is not None
        assert decision.fitted < size
        status = after(status, decision)


@given(st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=6))
def test_some_attempt_fits_whatever_the_nodes_allow(ends: list[tuple[int, bool]]) -> None:
    """Each attempt finds some room, and ends by a failure or a suspension."""
    status, wish = RLJobStatus(), 4
    for room, suspended in ends:
        status = begun(status, room=room)
        assert status.trainer.desired == max(2, min(room, wish))
        wish = 6
        trainer = a_trainer(status.attempt, "Failed")
        context = a_view(status=status, trainer=trainer, lifecycle=PATIENT)
        end = Halted(attempt=status.attempt) if suspended else decide(context)
        status = after(status, end)
    assert status.failures == sum(not suspended for _, suspended in ends)


TWO = Trainer(replicas=4, elastic=Elastic(min_replicas=2, max_replicas=6, max_restarts=2))


@pytest.mark.parametrize(
    ("wishes", "action", "code", "counted"),
    [
        (TWO, None, 1, [False, False, True, False, False, True]),
        (TWO, "Ignore", 1, [False] * 6),
        (TWO, "FailJob", 1, [True]),
        (ELASTIC, None, 1, [True] * 4),
        (Trainer(replicas=4), None, 1, [True] * 4),
    ],
    ids=["two of three", "ignored anyway", "at once", "none", "not elastic"],
)
def test_elastic_max_restarts_failures_in_a_row_do_not_count(
    wishes: Trainer, action: str | None, code: int, counted: list[bool]
) -> None:
    rule = {"action": action, "onExitCodes": {"values": [code]}}
    policy = {"rules": [rule]} if action else {}
    lifecycle = Lifecycle.model_validate({"failurePolicy": policy})
    status, counts = RLJobStatus(), []
    for attempt in range(1, 7):
        record = AttemptStatus(attempt=attempt, start_time=format_time(NOW), replicas=4)
        status = status.model_copy(update={"attempt": attempt, "attempts": [record]})
        decision = decide(
            a_view(
                status=status,
                wishes=wishes,
                lifecycle=lifecycle,
                trainer=a_trainer(attempt, "Failed"),
                pods=(an_ended_pod(code),),
            )
        )
        assert isinstance(decision, Ended)
        status = decided(status, decision, NOW)
        counts.append(decision.counts)
        if decision.final:
            break
    assert counts == counted
    assert (status.failures, status.ignored_failures) == (sum(counts), counts.count(False))
    assert status.elastic_restarts <= 2


def test_an_attempt_that_never_ran_counts() -> None:
    stuck = a_pod(phase="Pending", ready=False, started_at=None, created_at=NOW - 9999)
    decision = decide(a_view(wishes=TWO, pods=(stuck,)))
    assert isinstance(decision, Ended)
    assert (decision.failure.reason, decision.counts) == ("PendingDeadlineExceeded", True)
