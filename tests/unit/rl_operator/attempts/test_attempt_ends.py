"""How attempts end is told, counted or not, and followed by the pause that it deserves."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rl_contracts.documents.run import Holder
from rl_contracts.spec.lifecycle import Lifecycle
from rl_contracts.spec.status import RLJobStatus
from rl_operator.attempts.lifecycle import decide
from rl_operator.attempts.status import decided
from rl_operator.kube.timestamps import format_time
from rl_operator.state.decisions import Complete, Decision, Ended, Wait
from rl_operator.state.pod import Container, Pod
from tests.unit.rl_operator.builders import (
    NOW,
    a_failure,
    a_pod,
    a_run_document,
    a_trainer,
    a_view,
    an_ended_pod,
    an_outcome,
    with_outcome,
)

ENDED = RLJobStatus(attempt=1, failures=1, last_failure=a_failure())
LATER = ENDED.model_copy(update={"next_retry_time": format_time(NOW + 10)})
OLD = a_trainer(created_at=NOW - 5000)
RAN = a_trainer(created_at=NOW - 5000, ran_at=NOW - 4900)
STUCK = a_pod(phase="Pending", ready=False, started_at=None, created_at=NOW - 1801)


def held(heartbeat_at: float, attempt: int = 1, **changes: Any) -> Any:
    """The run as a trainer of an attempt left it."""
    values = {"heartbeat_at": heartbeat_at, "progress_at": heartbeat_at, **changes}
    return a_run_document(holder=Holder(job="uid", attempt=attempt), **values)


def beside_a_sidecar(exit_code: int, ended_at: float) -> Pod:
    """A pod whose trainer has ended, and that another container keeps."""
    trainer = Container(name="pytorch", exit_code=exit_code, ended_at=ended_at)
    return a_pod(ready=False, containers=(trainer, Container(name="log")))


ENDS: dict[str, tuple[dict[str, Any], str, bool, str]] = {
    "crash": (
        {"trainer": a_trainer(state="Failed"), "pods": (an_ended_pod(1, message="boom"),)},
        "TrainerFailed",
        True,
        "Exit code 1. End of its log: boom",
    ),
    "drained, its process has not ended": (
        {
            "trainer": a_trainer(state="Failed"),
            "pods": (a_pod(deleting=True, reason="EvictionByEvictionAPI", message="Evicting."),),
        },
        "EvictionByEvictionAPI",
        True,
        "Pod trainer-pod is being deleted. Evicting.",
    ),
    "deleted, its process has not ended": (
        {"trainer": a_trainer(state="Failed"), "pods": (a_pod(deleting=True),)},
        "PodDeleted",
        True,
        "Pod trainer-pod is being deleted.",
    ),
    "evicted": (
        {
            "trainer": a_trainer(state="Failed"),
            "pods": (
                dataclasses.replace(
                    an_ended_pod(137, exit_reason="Error", message="step 3"),
                    reason="Evicted",
                    message="Its disk is over the limit.",
                ),
            ),
        },
        "Evicted",
        True,
        "Its disk is over the limit. Exit code 137 by SIGKILL. End of its log: step 3",
    ),
    "a sidecar keeps its pod": (
        {"pods": (beside_a_sidecar(42, NOW - 61),)},
        "TrainerFailed",
        True,
        "Exit code 42.",
    ),
    "a sidecar keeps one of its pods": (
        {"pods": (a_pod(created_at=NOW), beside_a_sidecar(42, NOW - 61))},
        "TrainerFailed",
        True,
        "Exit code 42.",
    ),
    "a sidecar keeps the pod of a trainer that said nothing": (
        {"pods": (beside_a_sidecar(0, NOW - 61),)},
        "ExitedWithoutOutcome",
        True,
        "",
    ),
    "killed for memory": (
        {
            "trainer": a_trainer(state="Failed"),
            "pods": (an_ended_pod(137, exit_reason="OOMKilled"),),
        },
        "OOMKilled",
        True,
        "Exit code 137 by SIGKILL. The container needed more host memory than "
        "spec.trainer.resources.limits.memory: raise it",
    ),
    "pod is gone": (
        {"trainer": a_trainer(state="Failed"), "pods": ()},
        "PodMissing",
        False,
        "left no exit code: it, or its node, was deleted.",
    ),
    "its own words": (
        {
            "trainer": a_trainer(state="Failed"),
            "pods": (an_ended_pod(1),),
            "run": with_outcome("Failed", reason="NonFiniteLoss", message="Loss is NaN."),
        },
        "NonFiniteLoss",
        True,
        "Loss is NaN.",
    ),
    "an earlier attempt's words do not explain a kill": (
        {
            "trainer": a_trainer(state="Failed"),
            "pods": (an_ended_pod(137),),
            "run": with_outcome("Failed", reason="NonFiniteLoss"),
        },
        "TrainerFailed",
        True,
        "SIGKILL",
    ),
    "no outcome": (
        {"trainer": a_trainer(state="Succeeded"), "pods": (an_ended_pod(0),)},
        "ExitedWithoutOutcome",
        True,
        "left no outcome",
    ),
    "exit code 2 without a refusal counts": (
        {"trainer": a_trainer(state="Failed"), "pods": (an_ended_pod(2),)},
        "TrainerFailed",
        True,
        "Exit code 2",
    ),
    "refused": (
        {
            "trainer": a_trainer(state="Failed"),
            "pods": (an_ended_pod(2),),
            "run": with_outcome(
                "Refused", reason="ScorerUnknown", field="spec.x", value="y", remedy="Do z."
            ),
        },
        "ScorerUnknown",
        False,
        "spec.x = 'y': So. Do z.",
    ),
    "it had failed before it was suspended": (
        {"trainer": a_trainer(state="Failed"), "pods": (an_ended_pod(1),), "suspend": True},
        "TrainerFailed",
        True,
        "Exit code 1.",
    ),
    "never scheduled": ({"pods": (STUCK,)}, "PendingDeadlineExceeded", True, "within 1800 s"),
    "pod never created": (
        {"pods": (), "trainer": a_trainer(created_at=NOW - 1801)},
        "PendingDeadlineExceeded",
        True,
        "never created: check that training-operator is running",
    ),
    "pod never created, an earlier attempt had one": (
        {"pods": (), "trainer": OLD, "job": "uid", "run": held(NOW, attempt=0)},
        "PendingDeadlineExceeded",
        True,
        "never created",
    ),
    "pod has vanished and none replaced it": (
        {"pods": (), "trainer": OLD, "job": "uid", "run": held(NOW - 1801)},
        "PodMissing",
        False,
        "No other pod replaced it within 1800 s.",
    ),
    "pod has vanished before it took the run": (
        {"pods": (), "trainer": RAN},
        "PodMissing",
        False,
        "does not count as a failure",
    ),
    "its node is lost": (
        {"pods": (a_pod(deleting=True, gone_by=NOW - 61),)},
        "PodMissing",
        False,
        "Pod trainer-pod is being deleted, and still exists a minute after",
    ),
    "a finalizer keeps a pod that has no node": (
        {"pods": (a_pod(phase="Pending", ready=False, deleting=True, gone_by=NOW - 61),)},
        "PodMissing",
        False,
        "it has no node, so a finalizer keeps it. Remove that from metadata.finalizers.",
    ),
    "its node is lost once it had failed": (
        {
            "pods": (a_pod(deleting=True, gone_by=NOW - 61),),
            "job": "uid",
            "run": held(NOW - 200, outcome=an_outcome("Failed", reason="NonFiniteLoss")),
        },
        "NonFiniteLoss",
        True,
        "So.",
    ),
    "its node is lost once it had refused its input": (
        {
            "pods": (a_pod(deleting=True, gone_by=NOW - 61),),
            "job": "uid",
            "run": held(NOW - 200, outcome=an_outcome("Refused", reason="ScorerUnknown")),
        },
        "ScorerUnknown",
        False,
        "So.",
    ),
    "its node is lost after an earlier attempt had failed": (
        {
            "pods": (a_pod(deleting=True, gone_by=NOW - 61),),
            "job": "uid",
            "run": held(NOW - 200, attempt=0, outcome=an_outcome("Failed")),
        },
        "PodMissing",
        False,
        "Repair or remove the node. This does not count as a failure.",
    ),
    "the node of one of its pods is lost": (
        {"pods": (a_pod(name="a", deleting=True, gone_by=NOW - 61), a_pod(name="b"))},
        "PodMissing",
        False,
        "Pod a is being deleted",
    ),
    "pod never started": (
        {"pods": (a_pod(phase="Pending", ready=False, created_at=NOW - 1801),)},
        "PendingDeadlineExceeded",
        True,
        "was created and never started",
    ),
    "no step": (
        {
            "pods": (a_pod(started_at=NOW - 5000),),
            "run": a_run_document(progress_at=NOW - 1801, phase="waiting for rollouts"),
        },
        "ProgressDeadlineExceeded",
        True,
        "The trainer's phase: waiting for rollouts",
    ),
}


@pytest.mark.parametrize(("changes", "reason", "counts", "words"), ENDS.values(), ids=ENDS.keys())
def test_end_of_an_attempt_has_reason_count_and_message(
    changes: dict[str, Any], reason: str, counts: bool, words: str
) -> None:
    decision = decide(a_view(**changes))
    assert isinstance(decision, Ended)
    assert (decision.failure.reason, decision.counts) == (reason, counts)
    assert decision.failure.attempt == 1
    refused = not counts and not decision.ignored
    assert (decision.failure.exit_code == 2) is refused
    assert words in decision.failure.message


@pytest.mark.parametrize(
    ("pod", "run"),
    [
        (a_pod(deleting=True, gone_by=NOW - 59), None),
        (a_pod(deleting=True, gone_by=NOW - 500), with_outcome("Succeeded")),  # soon complete
        (dataclasses.replace(an_ended_pod(1), deleting=True, gone_by=NOW - 500), None),
    ],
)
def test_node_of_a_terminating_pod_is_not_lost_yet(pod: Pod, run: Any) -> None:
    changes = {} if run is None else {"run": run}
    assert decide(a_view(pods=(pod,), **changes)) == Wait(why="Running")


@pytest.mark.parametrize(
    "changes",
    [
        {"trainer": OLD, "run": held(NOW - 1799)},
        {"trainer": RAN, "run": held(NOW - 1799)},
        {"trainer": RAN, "run": None, "run_known": False},  # nobody knows when it vanished
        {"trainer": a_trainer(created_at=NOW - 5000, ran_at=NOW - 1799)},
    ],
)
def test_vanished_pod_is_waited_for_from_its_last_sign(changes: dict[str, Any]) -> None:
    assert decide(a_view(pods=(), job="uid", **changes)) == Wait(why="Running")


@pytest.mark.parametrize(
    ("failures", "delay", "final"), [(0, 10, False), (1, 20, False), (2, 40, False), (3, 80, True)]
)
def test_backoff_doubles_until_the_limit(failures: int, delay: float, final: bool) -> None:
    status = RLJobStatus(attempt=failures + 1, failures=failures)
    context = a_view(
        status=status,
        trainer=a_trainer(failures + 1, "Failed"),
        pods=(an_ended_pod(1),),
        lifecycle=Lifecycle(),
    )
    decision = decide(context)
    assert isinstance(decision, Ended)
    assert (decision.retry_at - NOW, decision.final) == (delay, final)


@pytest.mark.parametrize("most", [600, 60, 86400])
def test_backoff_has_an_upper_bound(most: int) -> None:
    lifecycle = Lifecycle(backoff_limit=100, restart_backoff_max_seconds=most)
    context = a_view(
        status=RLJobStatus(attempt=50, failures=49),
        trainer=a_trainer(50, "Failed"),
        pods=(an_ended_pod(1),),
        lifecycle=lifecycle,
    )
    decision = decide(context)
    assert isinstance(decision, Ended)
    assert decision.retry_at - NOW == most
    after = decided(context.status, decision, NOW)
    assert decide(dataclasses.replace(context, status=after, pods=())) == Wait(why="Backoff")


def test_sidecar_may_outlive_the_trainer_by_a_minute() -> None:
    pods = (beside_a_sidecar(42, NOW - 59),)
    assert decide(a_view(pods=pods)) == Wait(why="Running")


def test_running_sidecar_does_not_turn_success_into_failure() -> None:
    run = with_outcome("Succeeded")
    pods = (beside_a_sidecar(0, NOW - 61),)
    assert decide(a_view(pods=pods, run=run)) == Wait(why="Running")
    later = dataclasses.replace(a_view(pods=pods, run=run), store_now=NOW + 61)
    assert isinstance(decide(later), Complete)


def test_a_store_outage_stops_the_progress_deadline() -> None:
    pods = (a_pod(started_at=NOW - 5000),)
    assert decide(a_view(pods=pods, run=None, run_known=False)) == Wait(why="Running")


@pytest.mark.parametrize(
    ("changes", "ends"),
    [
        ({}, True),
        ({"status": LATER}, True),  # between two attempts
        ({"suspend": True}, False),
        ({"run": with_outcome("Succeeded"), "trainer": a_trainer(state="Succeeded")}, False),
    ],
)
def test_the_active_deadline_ends_the_job(changes: dict[str, Any], ends: bool) -> None:
    status = changes.pop("status", RLJobStatus(attempt=1))
    lifecycle = Lifecycle(active_deadline_seconds=100)

    def at(seconds: float) -> Decision:
        since = {"active_since": format_time(NOW - seconds)}
        return decide(
            a_view(status=status.model_copy(update=since), lifecycle=lifecycle, **changes)
        )

    assert not isinstance(at(100), Ended)
    decision = at(101)
    assert isinstance(decision, Ended) is ends
    if isinstance(decision, Ended):
        assert (decision.failure.reason, decision.final) == ("DeadlineExceeded", True)


def test_a_signal_has_a_name() -> None:
    pods = (an_ended_pod(139),)
    decision = decide(a_view(trainer=a_trainer(state="Failed"), pods=pods))
    assert isinstance(decision, Ended)
    assert decision.failure.signal == 11
    assert "SIGSEGV" in decision.failure.message
