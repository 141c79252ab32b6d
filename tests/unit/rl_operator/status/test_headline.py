"""The one thing that matters: the table of the design, and words that help."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rl_contracts.spec.pool_status import SamplerPoolStatus
from rl_contracts.spec.resources import SamplerPoolSpec
from rl_contracts.spec.status import (
    AttemptStatus,
    Condition,
    OperationStatus,
    RLJobStatus,
    SamplersStatus,
)
from rl_operator.kube.conditions import Stall, find
from rl_operator.kube.timestamps import format_time
from rl_operator.state.decisions import Begin, Ended, Wait
from rl_operator.state.pod import Container
from rl_operator.state.progress import REACHED, Reach, Reading
from rl_operator.status.job_conditions import compute
from rl_operator.status.status_input import StatusInput
from tests.unit.rl_operator.builders import (
    NOW,
    a_failure,
    a_job_object,
    a_meta,
    a_pod,
    a_reading,
    a_run_document,
    a_snapshot,
)
from tests.unit.rl_operator.status_inputs import (
    AT_WORK,
    COMPLETE,
    DOWN,
    POOLS,
    RUN,
    STARTED,
    UNJUDGED,
    a_status_input,
)


def ended(attempt: int = 1, *, counts: bool = True, final: bool = False) -> Ended:
    failure = a_failure(attempt, **({} if counts else {"exit_code": 2, "reason": "ScorerUnknown"}))
    return Ended(failure=failure, counts=counts, retry_at=NOW + 10, final=final)


HALTED = STARTED.model_copy(
    update={
        "attempts": [AttemptStatus(attempt=1, result="Suspended", start_time=format_time(NOW - 60))]
    }
)
LATE = OperationStatus(
    kind="Suspend",
    step="StoppingTrainer",
    started_time=format_time(NOW - 500),
    deadline=format_time(NOW - 80),
)
AT_REST = Condition(
    type="Ready",
    status="True",
    reason="Suspended",
    observed_generation=1,
    last_transition_time=format_time(NOW),
)
RESTING = (dataclasses.replace(POOLS[0], status=SamplerPoolStatus(conditions=[AT_REST])),)
SUCCEEDED = RUN.model_copy(update={"outcome": COMPLETE.outcome})
PENDING = a_pod(phase="Pending", ready=False, unscheduled="0/1 nodes: Insufficient gpu")
LOOPING = Container(name="engine", waiting="CrashLoopBackOff", exit_code=137, message="out")
CRASHING = a_pod("sampler", ready=False, containers=(LOOPING,))


def trainer_container(exit_code: int) -> Container:
    return Container(name="pytorch", exit_code=exit_code, ended_at=NOW)


ENDED = a_pod(ready=False, containers=(trainer_container(0),))
WORKING = STARTED.model_copy(
    update={"phase": "Running", "samplers": SamplersStatus(desired=1, ready=1, summary="1/1")}
)
GROWING = (dataclasses.replace(POOLS[0], spec=SamplerPoolSpec(job="job", replicas=2)),)
SERVING = a_pod("sampler")
STARTING = a_pod("sampler", ready=False, phase="Pending")

TABLE: dict[str, tuple[StatusInput, str, str, str]] = {
    "looking at inputs": (
        a_status_input(RLJobStatus(), checking=True, parts={}),
        "Pending",
        "Reconciling",
        "CheckingInputs",
    ),
    "no sampler yet": (
        a_status_input(RLJobStatus(), a_reading()),
        "Starting",
        "Reconciling",
        "WaitingForSamplers",
    ),
    "bad input": (
        a_status_input(RLJobStatus(), stall=Stall(reason="ModelNotFound", message="m")),
        "Stalled",
        "Stalled",
        "ModelNotFound",
    ),
    "begins": (
        a_status_input(RLJobStatus(), decision=Begin(attempt=1), parts={"pools": POOLS}),
        "Starting",
        "Reconciling",
        "TrainerStarting",
    ),
    "no node": (
        a_status_input(parts={"pools": POOLS, "pods": (PENDING,)}),
        "Starting",
        "Reconciling",
        "TrainerStarting",
    ),
    "nothing published": (
        a_status_input(reading=a_reading(a_run_document(trainers=1))),
        "Starting",
        "Reconciling",
        "PublishingPolicy",
    ),
    "a sampler crashes": (
        a_status_input(parts={"pools": POOLS, "pods": (a_pod(), CRASHING)}),
        "Recovering",
        "Reconciling",
        "SamplersStarting",
    ),
    "a pool grows": (
        a_status_input(WORKING, parts={"pools": GROWING, "pods": (a_pod(), SERVING, STARTING)}),
        "Running",
        "Reconciling",
        "ScalingUp",
    ),
    "a sampler is lost while a pool grows": (
        a_status_input(WORKING, parts={"pools": GROWING, "pods": (a_pod(), CRASHING, STARTING)}),
        "Recovering",
        "Reconciling",
        "SamplersStarting",
    ),
    "at work": (a_status_input(), "Running", "Ready", "Running"),
    "the judge is down": (
        a_status_input(reading=a_reading(RUN, samplers=(UNJUDGED,))),
        "Recovering",
        "Reconciling",
        "ScorerUnavailable",
    ),
    "store down": (
        a_status_input(reading=Reading(store=DOWN, bucket=REACHED)),
        "Recovering",
        "Reconciling",
        "StateStoreUnreachable",
    ),
    "trainer again": (
        a_status_input(
            reading=a_reading(RUN.model_copy(update={"trainers": 2})), parts={"pools": POOLS}
        ),
        "Recovering",
        "Reconciling",
        "TrainerStarting",
    ),
    "succeeded, its pod still ends": (
        a_status_input(
            reading=a_reading(SUCCEEDED),
            parts={"pools": POOLS, "pods": (a_pod(phase="Succeeded", ready=False),)},
        ),
        "Running",
        "Reconciling",
        "Finishing",
    ),
    "its trainer has ended well, its pod and its outcome are behind": (
        a_status_input(parts={"pools": POOLS, "pods": (ENDED,)}),
        "Running",
        "Reconciling",
        "Finishing",
    ),
    "its trainer has failed, its pod is behind": (
        a_status_input(
            parts={
                "pools": POOLS,
                "pods": (dataclasses.replace(ENDED, containers=(trainer_container(1),)),),
            }
        ),
        "Recovering",
        "Reconciling",
        "TrainerEnded",
    ),
    "its pod has ended": (
        a_status_input(parts={"pools": POOLS, "pods": (a_pod(phase="Failed", ready=False),)}),
        "Recovering",
        "Reconciling",
        "TrainerEnded",
    ),
    "stopping": (
        a_status_input(
            snapshot=a_snapshot(job=a_job_object(STARTED, suspend=True), **AT_WORK),
            decision=Wait(why="Stopping"),
        ),
        "Suspending",
        "Reconciling",
        "Stopping",
    ),
    "a pod does not stop": (
        a_status_input(
            snapshot=a_snapshot(
                job=a_job_object(STARTED.model_copy(update={"operation": LATE}), suspend=True),
                **AT_WORK,
            ),
            decision=Wait(why="Stopping"),
        ),
        "Suspending",
        "Stalled",
        "PodsNotStopping",
    ),
    "suspended": (
        a_status_input(
            snapshot=a_snapshot(job=a_job_object(HALTED, suspend=True), pools=RESTING),
            reading=Reading(),
            decision=Wait(why="Suspended"),
        ),
        "Suspended",
        "Ready",
        "Suspended",
    ),
    "suspended, a pod ended but there": (
        a_status_input(
            snapshot=a_snapshot(
                job=a_job_object(HALTED, suspend=True),
                pools=RESTING,
                pods=(a_pod("sampler", phase="Succeeded", ready=False, deleting=True),),
            ),
            reading=Reading(),
            decision=Wait(why="Suspended"),
        ),
        "Suspending",
        "Reconciling",
        "Stopping",
    ),
    "suspended, an evicted pod left behind": (
        a_status_input(
            snapshot=a_snapshot(
                job=a_job_object(HALTED, suspend=True),
                pools=RESTING,
                pods=(a_pod("sampler", phase="Failed", ready=False),),
            ),
            reading=Reading(),
            decision=Wait(why="Suspended"),
        ),
        "Suspended",
        "Ready",
        "Suspended",
    ),
    "suspended from the first": (
        a_status_input(
            snapshot=a_snapshot(job=a_job_object(RLJobStatus(), suspend=True)),
            reading=Reading(),
            decision=Wait(why="Suspended"),
        ),
        "Suspended",
        "Ready",
        "Suspended",
    ),
    "resuming": (
        a_status_input(HALTED, parts={"pools": RESTING}),
        "Starting",
        "Reconciling",
        "Resuming",
    ),
    "failed once": (a_status_input(decision=ended()), "Recovering", "Reconciling", "TrainerFailed"),
    "refused by the trainer": (
        a_status_input(decision=ended(counts=False)),
        "Stalled",
        "Stalled",
        "ScorerUnknown",
    ),
    "failed for good": (
        a_status_input(decision=ended(final=True)),
        "Failed",
        "Stalled",
        "TrainerFailed",
    ),
    "complete": (a_status_input(decision=COMPLETE), "Succeeded", "Ready", "Complete"),
    "deleting": (
        a_status_input(snapshot=a_snapshot(job=a_job_object(STARTED, meta=a_meta(deleted_at=NOW)))),
        "Terminating",
        "Reconciling",
        "Deleting",
    ),
}


@pytest.mark.parametrize(
    ("status_input", "phase", "state", "reason"), TABLE.values(), ids=TABLE.keys()
)
def test_the_table_of_states(
    status_input: StatusInput, phase: str, state: str, reason: str
) -> None:
    after = compute(status_input)
    ready = find(after.conditions, "Ready")
    assert ready is not None
    assert (after.phase, ready.reason) == (phase, reason)
    assert ready.status == ("True" if state == "Ready" else "False")
    for kind in ("Reconciling", "Stalled"):
        condition = find(after.conditions, kind)
        assert (condition is not None and condition.status == "True") is (state == kind), kind
    assert after.observed_generation == 1
    assert len({condition.type for condition in after.conditions}) == len(after.conditions)
    assert all(condition.message for condition in after.conditions), after.conditions


@pytest.mark.parametrize(("status_input", "phase", "state", "reason"), TABLE.values(), ids=TABLE)
def test_second_reconcile_changes_nothing(
    status_input: StatusInput, phase: str, state: str, reason: str
) -> None:
    after = compute(status_input)
    meta = status_input.snapshot.job.meta
    again = StatusInput(
        snapshot=a_snapshot(
            job=dataclasses.replace(status_input.snapshot.job, status=after, meta=meta),
            pools=status_input.snapshot.pools,
            pods=status_input.snapshot.pods,
        ),
        reading=status_input.reading,
        bucket=status_input.bucket,
        stall=status_input.stall,
        checking=status_input.checking,
        now=NOW + 60,
    )
    assert compute(again) == after


def test_ready_names_the_cause() -> None:
    no_node = find(compute(TABLE["no node"][0]).conditions, "Ready")
    assert no_node is not None
    assert no_node.message == "Pod trainer-pod fits no node: 0/1 nodes: Insufficient gpu"
    crash = find(compute(TABLE["a sampler crashes"][0]).conditions, "SamplersReady")
    assert crash is not None
    words = "Pod sampler-pod, container engine: CrashLoopBackOff after exit code 137: out"
    assert crash.message == words


def test_pods_that_do_not_stop_name_what_their_pool_says() -> None:
    refused = AT_REST.model_copy(
        update={"type": "Stalled", "reason": "ChildRefused", "message": "frozen"}
    )
    status = SamplerPoolStatus(conditions=[refused])
    pools = (dataclasses.replace(POOLS[0], status=status),)
    job = a_job_object(STARTED.model_copy(update={"operation": LATE}), suspend=True)
    for known, words in ((POOLS, "Check their nodes."), (pools, "(ChildRefused): frozen")):
        snapshot = a_snapshot(job=job, pools=known, pods=AT_WORK["pods"])
        after = compute(a_status_input(snapshot=snapshot, decision=Wait(why="Stopping")))
        stalled = find(after.conditions, "Stalled")
        assert stalled is not None
        assert stalled.reason == "PodsNotStopping"
        assert stalled.message.endswith(words)


def test_failed_goes_with_stalled_and_stays() -> None:
    after = compute(TABLE["failed for good"][0])
    assert {"Failed", "Stalled"} <= {condition.type for condition in after.conditions}
    assert after.completion_time == format_time(NOW)
    later = compute(a_status_input(after, a_reading(RUN), parts={}))
    assert (later.phase, later.conditions) == ("Failed", after.conditions)


def test_completion_keeps_the_last_numbers() -> None:
    after = compute(TABLE["complete"][0])
    assert (after.final_model, after.progress.step) == ("s3://f/", 3)
    assert after.samplers.summary == "0/0"
    later = compute(a_status_input(after, Reading(), parts={}))
    assert later == after


def test_changing_client_errors_do_not_change_the_status() -> None:
    first = compute(a_status_input(reading=Reading(store=DOWN, bucket=REACHED)))
    other = Reach("False", "StateStoreUnreachable", "db:27017: timed out")
    assert compute(a_status_input(first, Reading(store=other, bucket=REACHED))) == first


@pytest.mark.parametrize(
    "what",
    [{"stall": Stall(reason="ChildRefused", message="Why.")}, {"blocked_reason": "Why."}],
    ids=["refused", "a webhook is away"],
)
@pytest.mark.parametrize(
    ("status", "rest"),
    [(STARTED, "to terminate."), (STARTED.model_copy(update={"operation": LATE}), "their nodes.")],
    ids=["in time", "late"],
)
def test_a_stopping_job_says_what_else_stands_in_its_way(
    what: dict[str, Any], status: RLJobStatus, rest: str
) -> None:
    job = a_job_object(status, suspend=True)
    snapshot = a_snapshot(job=job, **AT_WORK)
    after = compute(a_status_input(snapshot=snapshot, decision=Wait(why="Stopping"), **what))
    ready = find(after.conditions, "Ready")
    assert ready is not None
    assert ready.message.endswith(f"{rest} Why.")
