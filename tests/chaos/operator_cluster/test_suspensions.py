"""A job is suspended in each of its phases, holds nothing then, and goes on where it was.

That no step is lost or made twice is shown by ``tests/cluster/test_suspend.py`` with real training.

| row | suspended while | resumed |
|---|---|---|
| stalled | its data are missing | stays Stalled while suspended, too; goes on once they are there |
| waiting | its samplers' image cannot be pulled | waits for samplers again |
| starting | no node takes its trainer | with another nodeSelector: the next attempt, Complete |
| running | its trainer works | the next attempt in the next epoch |
| recovering | the pause after a crash | waits what is left of it; the crash stays counted |
| stopping | it is resumed before its pods have gone | goes on, no failure |
| succeeded, failed | it is over | nothing changes |
| born | it is created so | begins its first attempt |
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from rl_console import view
from rl_contracts.spec.status import RLJobStatus
from tests.chaos.operator_cluster.jobs import (
    COMPLETE_SECONDS,
    CRASHED,
    HALTED,
    TRAINED,
    attempts,
    await_gone,
    await_phase,
    await_trainer,
    condition_of,
    order,
    patch,
    taught_job,
)
from tests.cluster.lab import Lab
from tests.cluster.manifests import short_job
from tests.cluster.waiting import until

pytestmark = pytest.mark.timeout(2 * COMPLETE_SECONDS)
LATE = "s3://rl-data/rl-test/suspended.jsonl"
REST = "No pod runs. Set spec.suspend to false to resume the run."
FAKE = {"faults": "*=succeed"}
"""Where only the beginning of an attempt matters."""
JOBS: dict[str, dict[str, Any]] = {
    "stalled": {"data__train__0__uri": LATE, **FAKE},
    "starting": {"trainer__nodeSelector": {"rl-test/nowhere": "true"}, **FAKE},
    "recovering": {"faults": "1=exit:1 2=succeed", "lifecycle__restartBackoffSeconds": 60},
    "succeeded": FAKE,
    "failed": {"faults": "*=exit:1", "lifecycle__backoffLimit": 0},
    "born": {"suspend": True, **FAKE},
}
WAITING = "waiting"
RUNNING, STOPPING = "running", "stopping"
AT_WORK = {
    RUNNING: taught_job(RUNNING, faults="*=work"),
    # The first one does not listen: it is there until its grace is over.
    STOPPING: taught_job(STOPPING, faults="1=linger *=work", lifecycle__suspendGraceSeconds=30),
}


@dataclass(frozen=True)
class Begun:
    """The jobs, when those that cannot wait for their test have been suspended."""

    uids: dict[str, str]
    crashed: RLJobStatus
    """Of the one that was suspended in its pause."""
    stopping: RLJobStatus
    """Of the one that was resumed before its pod had gone."""


@pytest.fixture(scope="module")
def begun(lab: Lab) -> Iterator[Begun]:
    with lab.stores() as stores:
        stores.objects.delete_prefix(f"{lab.namespace}/")
    names = [*JOBS, WAITING, *AT_WORK]
    for manifest in AT_WORK.values():
        lab.apply(manifest)
    for name, changes in JOBS.items():
        lab.apply(taught_job(name, **changes))
    image = "localhost:5000/rl-operator/nothing:1"
    lab.apply(short_job(WAITING, samplers__0__template__engine__image=image))
    crashed = await_phase(lab, "recovering", "Recovering", "TrainerFailed")
    patch(lab, "recovering", '{"suspend": true}')
    for name in AT_WORK:
        await_phase(lab, name, "Running")
        patch(lab, name, '{"suspend": true}')
    stopping = await_phase(lab, STOPPING, "Suspending", "Stopping")
    resume(lab, STOPPING)
    yield Begun({name: lab.job(name).uid for name in names}, crashed, stopping)
    lab.delete("rljob", *names)


def suspend(lab: Lab, job: str) -> RLJobStatus:
    """Suspend a job and wait until it holds nothing."""
    patch(lab, job, '{"suspend": true}')
    status = await_phase(lab, job, "Suspended", "Suspended")
    # One whose attempt had ended before stays for its log.
    assert [pod.name for pod in lab.pods(job) if pod.phase not in ("Succeeded", "Failed")] == []
    assert condition_of(status, "Suspended").status == "True"
    ready = condition_of(status, "Ready")
    assert (ready.status, ready.message) == ("True", REST)
    assert view.condition(status, "Stalled") is None
    assert status.operation is None
    return status


def resume(lab: Lab, job: str) -> None:
    patch(lab, job, '{"suspend": false}')


def check_trainers(lab: Lab, run: str, *, number: int) -> None:
    with lab.stores() as stores:
        record = stores.runs.get(run)
    assert record is not None
    assert record.trainers == number


def test_suspend_while_training(lab: Lab, begun: Begun) -> None:
    status = suspend(lab, RUNNING)
    assert (attempts(status), status.failures) == ([HALTED], 0)
    resume(lab, RUNNING)
    await_phase(lab, RUNNING, "Running")
    order(lab, RUNNING, "succeed")
    status = await_phase(lab, RUNNING, "Succeeded")
    assert (attempts(status), status.failures) == ([HALTED, TRAINED], 0)
    check_trainers(lab, begun.uids[RUNNING], number=3)  # the one that succeeds is another one


def test_resume_before_the_pods_have_terminated(lab: Lab, begun: Begun) -> None:
    condition = condition_of(begun.stopping, "Reconciling")
    assert (condition.reason, condition.message) == (
        "Stopping",
        "Waiting for stopping-1-worker-0 to terminate.",
    )
    await_trainer(lab, begun.uids[STOPPING], 2)
    status = await_phase(lab, STOPPING, "Running")
    assert (status.failures, status.ignored_failures) == (0, 0)
    order(lab, STOPPING, "succeed")
    status = await_phase(lab, STOPPING, "Succeeded")
    assert (status.failures, status.ignored_failures) == (0, 0)


def test_suspend_while_the_trainer_is_unschedulable(lab: Lab, begun: Begun) -> None:
    until(lambda: "fits no node" in trouble(lab, "starting"), what="the scheduler's word")
    assert lab.job("starting").status.phase == "Starting"
    assert attempts(suspend(lab, "starting")) == [HALTED]
    patch(lab, "starting", '{"suspend": false, "trainer": {"nodeSelector": null}}')
    status = await_phase(lab, "starting", "Succeeded")
    assert (attempts(status), status.failures) == ([HALTED, TRAINED], 0)


def trouble(lab: Lab, job: str) -> str:
    condition = lab.condition(job, "Reconciling")
    return condition.message if condition else ""


def test_suspend_in_the_pause_after_a_crash(lab: Lab, begun: Begun) -> None:
    message = condition_of(begun.crashed, "Ready").message
    assert message.startswith("Attempt 1 ended: Exit code 1. End of its log: ")
    assert message.endswith(f"Attempt 2 starts at {begun.crashed.next_retry_time}.")
    status = suspend(lab, "recovering")
    assert (attempts(status), status.failures) == ([CRASHED], 1)
    assert status.last_failure == begun.crashed.last_failure
    assert status.next_retry_time == begun.crashed.next_retry_time
    assert [pod.phase for pod in lab.pods("recovering")] == ["Failed"]
    resume(lab, "recovering")
    status = await_phase(lab, "recovering", "Succeeded")
    assert (attempts(status), status.failures) == ([CRASHED, TRAINED], 1)


def test_suspend_while_the_data_are_missing(lab: Lab, begun: Begun) -> None:
    condition = condition_of(await_phase(lab, "stalled", "Stalled", "DatasetNotFound"), "Stalled")
    assert condition.message.startswith(f"spec.data.train[0].uri = '{LATE}'")

    def is_suspended(wanted: bool) -> bool:
        """Whether the job is, or is not; its data are checked all the same."""
        status = await_phase(lab, "stalled", "Stalled", "DatasetNotFound")
        condition = view.condition(status, "Suspended")
        return (condition is not None and condition.status == "True") is wanted

    for wanted in (True, False, True):
        patch(lab, "stalled", json.dumps({"suspend": wanted}))
        until(partial(is_suspended, wanted), what=f"suspend: {wanted}")
    with lab.stores() as stores:
        good = stores.objects.get("datasets/arithmetic/train.jsonl")
        stores.objects.put(LATE.removeprefix("s3://rl-data/"), good)
    assert suspend(lab, "stalled").attempt == 0
    resume(lab, "stalled")
    assert attempts(await_phase(lab, "stalled", "Succeeded")) == [TRAINED]


def test_suspend_while_waiting_for_samplers(lab: Lab, begun: Begun) -> None:
    def reports_trouble() -> bool:
        words = trouble(lab, WAITING)
        return "main has 0 of 1" in words and "container engine: ImagePullBackOff" in words

    until(reports_trouble, what="the kubelet's word", seen=lambda: trouble(lab, WAITING))
    assert suspend(lab, WAITING).attempt == 0
    assert lab.cluster.pools(lab.namespace, WAITING)[0].replicas == 1
    resume(lab, WAITING)
    await_phase(lab, WAITING, "Starting", "WaitingForSamplers")
    until(lambda: len(lab.pods(WAITING)) == 1, what="the sampler's pod")
    assert lab.job(WAITING).status.attempt == 0


@pytest.mark.parametrize(("name", "phase"), [("succeeded", "Succeeded"), ("failed", "Failed")])
def test_suspend_of_a_finished_job_changes_nothing(
    lab: Lab, begun: Begun, name: str, phase: str
) -> None:
    before = await_phase(lab, name, phase)
    patch(lab, name, '{"suspend": true}')
    generation = lab.job(name).generation
    until(lambda: lab.job(name).status.observed_generation == generation, what="the edit's look")
    after = lab.job(name).status
    assert (after.phase, after.attempts) == (phase, before.attempts)
    expected = [
        (condition.type, condition.status, condition.reason, condition.message)
        for condition in before.conditions
    ]
    assert [
        (condition.type, condition.status, condition.reason, condition.message)
        for condition in after.conditions
    ] == expected


def test_job_created_suspended_starts_when_resumed(lab: Lab, begun: Begun) -> None:
    status = await_phase(lab, "born", "Suspended", "Suspended")
    assert (status.attempt, lab.pods("born")) == (0, [])
    resume(lab, "born")
    assert attempts(await_phase(lab, "born", "Succeeded")) == [TRAINED]


def test_deleted_jobs_leave_nothing_behind(lab: Lab, begun: Begun) -> None:
    await_gone(lab, begun.uids)
