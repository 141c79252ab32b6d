"""What is said while a trainer's PyTorchJob cannot be made, or its pods are not there, or wait."""

from __future__ import annotations

import dataclasses

import pytest

from rl_contracts.spec.status import RLJobStatus
from rl_operator.kube.conditions import find
from rl_operator.kueue.admission import Hold
from rl_operator.state.pod import Pod
from rl_operator.status.headline import PODS_DUE_SECONDS
from rl_operator.status.job_conditions import compute
from rl_operator.status.status_input import StatusInput
from tests.unit.rl_operator.builders import (
    NOW,
    a_job_object,
    a_pod,
    a_reading,
    a_snapshot,
    a_trainer,
)
from tests.unit.rl_operator.status_inputs import a_status_input

PENDING = a_pod(attempt=2, phase="Pending", ready=False)
UNFIT = a_pod(attempt=2, phase="Pending", ready=False, unscheduled="0/1 nodes: Insufficient gpu")
TERMINATING = a_pod(attempt=2, ready=False, deleting=True, gone_by=NOW)
STARTING = "The trainer's pod is starting."
UNMADE = "training-operator has created no pod for PyTorchJob job-2. Check that it is running."
LATE = PODS_DUE_SECONDS + 1
CASES: dict[str, tuple[int, float, tuple[Pod, ...], str]] = {
    "just made": (2, PODS_DUE_SECONDS, (), STARTING),
    "no pod for long": (2, LATE, (), UNMADE),
    "another attempt's object": (1, LATE, (), STARTING),
    "a pod is there": (2, LATE, (PENDING,), STARTING),
    "a pod is on a dead node": (2, LATE, (TERMINATING,), "Pod trainer-pod is terminating until"),
    "a pod fits nowhere": (2, LATE, (UNFIT,), "fits no node: 0/1 nodes: Insufficient gpu"),
}


@pytest.mark.parametrize(("attempt", "age", "pods", "words"), CASES.values(), ids=CASES)
def test_ready_says_what_keeps_the_trainer_from_running(
    attempt: int, age: float, pods: tuple[Pod, ...], words: str
) -> None:
    snapshot = a_snapshot(
        RLJobStatus(attempt=2, start_time="2026-01-01T00:00:00Z"),
        trainers=(a_trainer(attempt, created_at=NOW - age),),
        pods=pods,
    )
    condition = find(
        compute(StatusInput(snapshot=snapshot, reading=a_reading(), now=NOW)).conditions, "Ready"
    )
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "TrainerStarting")
    assert words in condition.message


@pytest.mark.parametrize(
    ("attempt", "phase"), [(0, "Starting"), (1, "Starting"), (2, "Recovering")]
)
def test_ready_names_the_object_that_a_webhook_blocks(attempt: int, phase: str) -> None:
    status = RLJobStatus(attempt=attempt, start_time="2026-01-01T00:00:00Z")
    blocked_reason = "pytorchjobs/job-1 cannot be written for now"
    computed = compute(
        StatusInput(
            snapshot=a_snapshot(status), reading=a_reading(), now=NOW, blocked_reason=blocked_reason
        )
    )
    conditions = {
        condition.type: (condition.status, condition.reason, condition.message)
        for condition in computed.conditions
    }
    assert computed.phase == phase
    assert conditions["Ready"] == ("False", "WebhookUnavailable", blocked_reason)
    assert conditions["Reconciling"] == ("True", "WebhookUnavailable", blocked_reason)
    assert "Stalled" not in conditions


def test_a_queued_job_names_the_object_that_a_webhook_blocks() -> None:
    blocked_reason = "workloads/rljob-job cannot be written for now"
    job = dataclasses.replace(a_job_object(), held=True)
    hold = Hold(reason="NotQueued", message="The job's Workload is about to be created.")
    waits = StatusInput(snapshot=a_snapshot(job=job), reading=a_reading(), hold=hold, now=NOW)
    for status_input, words in (
        (waits, (hold.reason, hold.message)),
        (
            dataclasses.replace(waits, blocked_reason=blocked_reason),
            ("WebhookUnavailable", blocked_reason),
        ),
    ):
        computed = compute(status_input)
        ready = find(computed.conditions, "Ready")
        assert ready is not None
        assert (computed.phase, ready.reason, ready.message) == ("Queued", *words)


def test_a_job_at_work_is_running_although_a_webhook_blocks_an_object() -> None:
    blocked_reason = "workloads/rljob-job cannot be written for now"
    computed = compute(a_status_input(blocked_reason=blocked_reason))
    ready = find(computed.conditions, "Ready")
    assert ready is not None
    assert (computed.phase, ready.reason, ready.message) == (
        "Running",
        "WebhookUnavailable",
        blocked_reason,
    )
