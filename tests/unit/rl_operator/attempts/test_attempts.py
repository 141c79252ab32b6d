"""Attempts begin, end, are repeated and give up, each exactly once."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rl_contracts.documents.run import Holder
from rl_contracts.spec.status import AttemptStatus, OperationStatus, RLJobStatus
from rl_operator.attempts.lifecycle import decide, stop_message
from rl_operator.attempts.status import recorded
from rl_operator.kube.timestamps import format_time
from rl_operator.render.job import runs_trainer
from rl_operator.state.attempt_records import is_halting
from rl_operator.state.decisions import Begin, Complete, Decision, Ended, Halted, Stopped, Wait
from rl_operator.state.pod import LINGER_SECONDS
from tests.unit.rl_operator.builders import (
    NOW,
    a_failure,
    a_job_object,
    a_pod,
    a_run_document,
    a_snapshot,
    a_trainer,
    a_view,
    an_ended_pod,
    an_outcome,
    with_outcome,
)

ENDED = RLJobStatus(attempt=1, failures=1, last_failure=a_failure())
LATER = ENDED.model_copy(update={"next_retry_time": format_time(NOW + 10)})
REFUSED = RLJobStatus(attempt=1, last_failure=a_failure(exit_code=2))
RECORD = AttemptStatus(attempt=1, start_time=format_time(NOW - 50))
HALTED = RLJobStatus(attempt=1, attempts=[RECORD.model_copy(update={"result": "Suspended"})])

KNOWN_TO_THE_RUN = a_run_document(holder=Holder(job="uid", attempt=5))
OF_ANOTHER_JOB = a_run_document(holder=Holder(job="first", attempt=5))

WAITS: dict[str, tuple[dict[str, Any], Decision]] = {
    "inputs first": (
        {"status": RLJobStatus(), "trainer": None, "may_begin": False},
        Wait(why="Inputs"),
    ),
    "first attempt": ({"status": RLJobStatus(), "trainer": None}, Begin(attempt=1)),
    "first attempt after the API server was restored from before it": (
        {"status": RLJobStatus(), "trainer": None, "job": "uid", "run": KNOWN_TO_THE_RUN},
        Begin(attempt=6),
    ),
    "next attempt after the API server was restored": (
        {"status": ENDED, "trainer": None, "pods": (), "job": "uid", "run": KNOWN_TO_THE_RUN},
        Begin(attempt=6),
    ),
    "first attempt in the run of another job": (
        {"status": RLJobStatus(), "trainer": None, "job": "uid", "run": OF_ANOTHER_JOB},
        Begin(attempt=1),
    ),
    "its job object is to be created": ({"trainer": None, "pods": ()}, Wait(why="Running")),
    "it runs": ({}, Wait(why="Running")),
    "it runs, and the operator's clock is an hour ahead": (
        {"now": NOW + 3600, "store_now": NOW},
        Wait(why="Running"),
    ),
    "it runs while the store is down": ({"run": None, "run_known": False}, Wait(why="Running")),
    "backoff": ({"status": LATER}, Wait(why="Backoff")),
    "backoff of a clock that was ahead": (
        {
            "status": ENDED.model_copy(update={"next_retry_time": format_time(NOW + 3000)}),
            "trainer": None,
            "pods": (),
        },
        Begin(attempt=2),
    ),
    "backoff is over": (
        {"status": ENDED, "trainer": a_trainer(state="Failed"), "pods": (an_ended_pod(1),)},
        Begin(attempt=2),
    ),
    "the old pod still runs": ({"status": ENDED}, Wait(why="Stopping")),
    "the old pod is about to go": (
        {"status": ENDED, "trainer": None, "pods": (a_pod(deleting=True, gone_by=NOW - 59),)},
        Wait(why="Stopping"),
    ),
    "the old pod's node does not answer": (
        {"status": ENDED, "trainer": None, "pods": (a_pod(deleting=True, gone_by=NOW - 61),)},
        Begin(attempt=2),
    ),
    "an older one still runs": (
        {"status": ENDED, "trainer": None, "others_active": True},
        Wait(why="Stopping"),
    ),
    "refused, inputs not mended": (
        {"status": REFUSED, "trainer": None, "pods": (), "may_begin": False},
        Wait(why="Inputs"),
    ),
    "refused, inputs mended": ({"status": REFUSED, "trainer": None, "pods": ()}, Begin(attempt=2)),
    "success is not readable": (
        {"trainer": a_trainer(state="Succeeded"), "run": None, "run_known": False},
        Wait(why="Outcome"),
    ),
    "refusal is not readable": (
        {
            "trainer": a_trainer(state="Failed"),
            "pods": (an_ended_pod(2),),
            "run": None,
            "run_known": False,
        },
        Wait(why="Outcome"),
    ),
    "it starts": (
        {"pods": (a_pod(phase="Pending", started_at=None, ready=False),)},
        Wait(why="Running"),
    ),
    "it has just ended": ({"pods": (an_ended_pod(1),)}, Wait(why="Running")),
    "suspended before it began": (
        {"status": RLJobStatus(), "trainer": None, "suspend": True},
        Wait(why="Suspended"),
    ),
    "to be suspended, it runs": ({"suspend": True}, Wait(why="Stopping")),
    "to be suspended, its pod is going": ({"suspend": True, "trainer": None}, Wait(why="Stopping")),
    "suspended, nothing is left of it": (
        {"suspend": True, "trainer": None, "pods": ()},
        Halted(attempt=1),
    ),
    "suspended": ({"status": HALTED, "trainer": None, "suspend": True}, Wait(why="Suspended")),
    "stopped for good, nothing is left of it": (
        {"suspend": True, "stop": True, "trainer": None, "pods": ()},
        Halted(attempt=1),
    ),
    "stopped for good": (
        {"status": HALTED, "trainer": None, "suspend": True, "stop": True},
        Stopped(message=stop_message(HALTED)),
    ),
    "suspended between two attempts": (
        {"status": LATER, "trainer": a_trainer(state="Failed"), "suspend": True},
        Wait(why="Suspended"),
    ),
    "resumed": ({"status": HALTED, "trainer": None, "pods": ()}, Begin(attempt=2)),
    "resumed while samplers are away": (
        {"status": HALTED, "trainer": None, "pods": (), "may_begin": False},
        Begin(attempt=2),
    ),
    "resumed before its samplers": (
        {"status": HALTED, "trainer": None, "pods": (), "samplers_ready": False},
        Wait(why="Samplers"),
    ),
    "a failure does not wait for samplers": (
        {"status": ENDED, "trainer": None, "pods": (), "samplers_ready": False},
        Begin(attempt=2),
    ),
    "success, pod ends soon": ({"run": with_outcome("Succeeded")}, Wait(why="Running")),
}


@pytest.mark.parametrize(("changes", "expected"), WAITS.values(), ids=WAITS.keys())
def test_decides(changes: dict[str, Any], expected: Decision) -> None:
    assert decide(a_view(**changes)) == expected


def test_late_sampler_fails_the_run_under_on_timeout_fail() -> None:
    decision = decide(a_view(late="SamplerPool p: Pod a: it serves version 1."))
    assert isinstance(decision, Ended)
    assert (decision.final, decision.failure.reason) == (True, "WeightSyncTimeout")
    assert "SamplerPool p: Pod a" in decision.failure.message
    assert decide(a_view(late="It.", status=LATER)) == Wait(why="Backoff")
    assert decide(a_view(late="It.", suspend=True)) == Wait(why="Stopping")


@pytest.mark.parametrize(
    ("trainer", "heartbeat"),
    [
        (a_trainer(state="Succeeded"), NOW),
        (a_trainer(state="Failed"), NOW),  # killed after its last word
        (None, NOW),
        (a_trainer(), NOW - 61),  # has said so and hangs
    ],
)
def test_recorded_success_completes_the_job_whatever_the_exit_code(
    trainer: Any, heartbeat: float
) -> None:
    outcome = an_outcome("Succeeded", final_model="s3://b/final/")
    run = a_run_document(heartbeat_at=heartbeat, progress_at=heartbeat, outcome=outcome)
    assert decide(a_view(trainer=trainer, run=run)) == Complete(outcome=outcome)


def test_success_during_a_suspension_completes_the_job() -> None:
    outcome = an_outcome("Succeeded", final_model="s3://b/final/")
    run = a_run_document(heartbeat_at=NOW, progress_at=NOW, outcome=outcome)
    context = a_view(trainer=None, pods=(), run=run, suspend=True)
    assert decide(context) == Complete(outcome=outcome)


SUSPENDING = RLJobStatus(
    attempt=1,
    attempts=[RECORD],
    operation=OperationStatus(kind="Suspend", step="StoppingTrainer", started_time="2026-01-01"),
)
RESUMED: dict[str, tuple[dict[str, Any], bool]] = {
    "its trainer was deleted": ({}, True),
    "its trainer is being deleted": ({"trainers": (a_trainer(deleting=True),)}, True),
    "its trainer was not deleted": ({"trainers": (a_trainer(),)}, False),
    "it was not suspended": ({"job": a_job_object(RLJobStatus(attempt=1))}, False),
}


@pytest.mark.parametrize(("seen", "halting"), RESUMED.values(), ids=RESUMED.keys())
def test_an_attempt_halts_once_a_suspension_has_deleted_its_trainer(
    seen: dict[str, Any], halting: bool
) -> None:
    snapshot = a_snapshot(SUSPENDING, **seen)
    assert is_halting(snapshot) is halting
    assert runs_trainer(snapshot, Wait(why="Running")) is not halting


def test_a_halting_attempt_ends_when_its_pods_have_gone_although_the_job_is_resumed() -> None:
    context = a_view(status=SUSPENDING, trainer=None, halting=True)
    assert decide(context) == Wait(why="Stopping")
    assert decide(dataclasses.replace(context, pods=())) == Halted(attempt=1)


@pytest.mark.parametrize("suspend", [True, False])
def test_a_resumed_job_does_not_wait_for_pods_of_an_unreachable_node(suspend: bool) -> None:
    context = a_view(status=SUSPENDING, trainer=None, halting=True, suspend=suspend)
    (pod,) = context.pods
    lost = dataclasses.replace(pod, deleting=True, gone_by=NOW - LINGER_SECONDS - 1)
    decision = decide(dataclasses.replace(context, pods=(lost,)))
    assert decision == (Wait(why="Stopping") if suspend else Halted(attempt=1))


def test_attempt_records_are_unique_and_bounded() -> None:
    status = RLJobStatus()
    for attempt in range(1, 13):
        begun = recorded(status, Begin(attempt=attempt), NOW)
        status = status.model_copy(update={"attempt": attempt, "attempts": begun})
        closed = recorded(status, Halted(attempt=attempt), NOW + 5)
        status = status.model_copy(update={"attempts": closed})
        assert recorded(status, Halted(attempt=attempt), NOW + 9) == closed  # told once
    assert [attempt.attempt for attempt in status.attempts] == list(range(3, 13))
    assert {attempt.result for attempt in status.attempts} == {"Suspended"}
    assert status.attempts[-1].end_time == format_time(NOW + 5)
