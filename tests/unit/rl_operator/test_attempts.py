"""Attempts begin, end, are repeated and give up, each exactly once."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.documents.run import Outcome
from rl_contracts.spec.status import RLJobStatus
from rl_contracts.spec.workers import Lifecycle
from rl_operator.attempts import Begin, Complete, Decision, Ended, Wait, decide
from rl_operator.snapshot import format_time
from tests.unit.rl_operator.builders import (
    NOW,
    a_failure,
    a_pod,
    a_run_document,
    a_trainer,
    a_view,
    an_ended_pod,
)


def outcome(kind: str, **changes: Any) -> Outcome:
    return Outcome.model_validate({"kind": kind, "reason": "Why", "message": "So.", **changes})


def with_outcome(kind: str, **changes: Any) -> Any:
    return a_run_document(heartbeat_at=NOW, progress_at=NOW, outcome=outcome(kind, **changes))


ENDED = RLJobStatus(attempt=1, failures=1, last_failure=a_failure())
LATER = ENDED.model_copy(update={"next_retry_time": format_time(NOW + 10)})
REFUSED = RLJobStatus(attempt=1, last_failure=a_failure(exit_code=2))
STUCK = a_pod(phase="Pending", ready=False, started_at=None, created_at=NOW - 1801)

WAITS: dict[str, tuple[dict[str, Any], Decision]] = {
    "inputs first": (
        {"status": RLJobStatus(), "trainer": None, "may_begin": False}, Wait(why="Inputs")
    ),
    "first attempt": ({"status": RLJobStatus(), "trainer": None}, Begin(attempt=1)),
    "its job object is to be created": ({"trainer": None, "pods": ()}, Wait(why="Running")),
    "it runs": ({}, Wait(why="Running")),
    "it runs while the store is down": ({"run": None, "run_known": False}, Wait(why="Running")),
    "backoff": ({"status": LATER}, Wait(why="Backoff")),
    "backoff is over": ({"status": ENDED, "trainer": a_trainer(state="Failed")}, Begin(attempt=2)),
    "the old pod still runs": ({"status": ENDED}, Wait(why="Stopping")),
    "an older one still runs": (
        {"status": ENDED, "trainer": None, "others_active": True}, Wait(why="Stopping")
    ),
    "refused, inputs not mended": (
        {"status": REFUSED, "trainer": None, "may_begin": False}, Wait(why="Inputs")
    ),
    "refused, inputs mended": ({"status": REFUSED, "trainer": None}, Begin(attempt=2)),
    "success is not readable": (
        {"trainer": a_trainer(state="Succeeded"), "run": None, "run_known": False},
        Wait(why="Outcome"),
    ),
    "refusal is not readable": (
        {
            "trainer": a_trainer(state="Failed"), "pods": (an_ended_pod(2),),
            "run": None, "run_known": False,
        },
        Wait(why="Outcome"),
    ),
    "it starts": (
        {"pods": (a_pod(phase="Pending", started_at=None, ready=False),)}, Wait(why="Running")
    ),
    "it has just ended": ({"pods": (an_ended_pod(1),)}, Wait(why="Running")),
    "success, pod ends soon": ({"run": with_outcome("Succeeded")}, Wait(why="Running")),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "expected"), WAITS.values(), ids=WAITS.keys())
def test_decides(changes: dict[str, Any], expected: Decision) -> None:
    assert decide(a_view(**changes)) == expected


ENDS: dict[str, tuple[dict[str, Any], str, bool, str]] = {
    "crash": (
        {"trainer": a_trainer(state="Failed"), "pods": (an_ended_pod(1, message="boom"),)},
        "TrainerFailed", True, "Exit code 1. Last words: boom",
    ),
    "killed for memory": (
        {
            "trainer": a_trainer(state="Failed"),
            "pods": (an_ended_pod(137, exit_reason="OOMKilled"),),
        },
        "OOMKilled", True, "Exit code 137 by SIGKILL.",
    ),
    "pod is gone": (
        {"trainer": a_trainer(state="Failed"), "pods": ()}, "PodMissing", True, "left no exit code"
    ),
    "its own words": (
        {
            "trainer": a_trainer(state="Failed"), "pods": (an_ended_pod(1),),
            "run": with_outcome("Failed", reason="NonFiniteLoss", message="Loss is NaN."),
        },
        "NonFiniteLoss", True, "Loss is NaN.",
    ),
    "an earlier attempt's words do not explain a kill": (
        {
            "trainer": a_trainer(state="Failed"), "pods": (an_ended_pod(137),),
            "run": with_outcome("Failed", reason="NonFiniteLoss"),
        },
        "TrainerFailed", True, "SIGKILL",
    ),
    "no outcome": (
        {"trainer": a_trainer(state="Succeeded"), "pods": (an_ended_pod(0),)},
        "ExitedWithoutOutcome", True, "left no outcome",
    ),
    "exit code 2 without a refusal counts": (
        {"trainer": a_trainer(state="Failed"), "pods": (an_ended_pod(2),)},
        "TrainerFailed", True, "Exit code 2",
    ),
    "refused": (
        {
            "trainer": a_trainer(state="Failed"), "pods": (an_ended_pod(2),),
            "run": with_outcome(
                "Refused", reason="ScorerUnknown", field="spec.x", value="y", remedy="Do z."
            ),
        },
        "ScorerUnknown", False, "spec.x = 'y': So. Do z.",
    ),
    "never scheduled": ({"pods": (STUCK,)}, "PendingDeadlineExceeded", True, "within 1800 s"),
    "pod never created": (
        {"pods": (), "trainer": a_trainer(created_at=NOW - 1801)},
        "PendingDeadlineExceeded", True, "never created",
    ),
    "no step": (
        {
            "pods": (a_pod(started_at=NOW - 5000),),
            "run": a_run_document(progress_at=NOW - 1801, phase="waiting for rollouts"),
        },
        "ProgressDeadlineExceeded", True, "the trainer says: waiting for rollouts",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "reason", "counts", "words"), ENDS.values(), ids=ENDS.keys()
)  # fmt: skip
def test_an_end_is_told(changes: dict[str, Any], reason: str, counts: bool, words: str) -> None:
    decision = decide(a_view(**changes))
    assert isinstance(decision, Ended)
    assert (decision.failure.reason, decision.counts) == (reason, counts)
    assert decision.failure.attempt == 1
    assert (decision.failure.exit_code == 2) is not counts
    assert words in decision.failure.message


@pytest.mark.parametrize(
    ("failures", "delay", "final"), [(0, 10, False), (1, 20, False), (2, 40, False), (3, 80, True)]
)
def test_backoff_doubles_until_the_limit(failures: int, delay: float, final: bool) -> None:
    status = RLJobStatus(attempt=failures + 1, failures=failures)
    view = a_view(
        status=status,
        trainer=a_trainer(failures + 1, "Failed"),
        pods=(an_ended_pod(1),),
        lifecycle=Lifecycle(),
    )
    decision = decide(view)
    assert isinstance(decision, Ended)
    assert (decision.retry_at - NOW, decision.final) == (delay, final)


def test_backoff_has_an_upper_bound() -> None:
    lifecycle = Lifecycle(backoff_limit=100)
    view = a_view(
        status=RLJobStatus(attempt=50, failures=49),
        trainer=a_trainer(50, "Failed"),
        pods=(an_ended_pod(1),),
        lifecycle=lifecycle,
    )
    decision = decide(view)
    assert isinstance(decision, Ended)
    assert decision.retry_at - NOW == 600


@pytest.mark.parametrize(
    ("trainer", "heartbeat"),
    [
        (a_trainer(state="Succeeded"), NOW),
        (a_trainer(state="Failed"), NOW),  # killed after its last word
        (None, NOW),
        (a_trainer(), NOW - 61),  # has said so and hangs
    ],
)
def test_a_success_is_one_however_the_pod_ends(trainer: Any, heartbeat: float) -> None:
    found = outcome("Succeeded", final_model="s3://b/final/")
    run = a_run_document(heartbeat_at=heartbeat, progress_at=heartbeat, outcome=found)
    assert decide(a_view(trainer=trainer, run=run)) == Complete(outcome=found)


def test_a_store_outage_stops_the_progress_deadline() -> None:
    pods = (a_pod(started_at=NOW - 5000),)
    assert decide(a_view(pods=pods, run=None, run_known=False)) == Wait(why="Running")
