"""Phase and conditions: the table of the design, and words that help."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rl_contracts.documents.run import (
    DatasetSummary,
    Drops,
    EvaluationResult,
    Outcome,
    PolicyPointer,
    Totals,
)
from rl_contracts.spec.resources import SamplerPoolSpec
from rl_contracts.spec.status import (
    AttemptStatus,
    Condition,
    DatasetStatus,
    OperationStatus,
    RLJobStatus,
    SamplerPoolStatus,
)
from rl_operator.attempts import Begin, Complete, Ended, Wait
from rl_operator.conditions import find
from rl_operator.job_conditions import compute
from rl_operator.pod import Container
from rl_operator.progress import NOT_ASKED, REACHED, Reach, Reading
from rl_operator.situation import Situation, Stall
from rl_operator.snapshot import Pool
from rl_operator.timestamps import format_time
from tests.documents import a_sampler, a_step
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

POLICY = PolicyPointer(version=4, epoch=1, step=3, prefix="p/", manifest_sha256="d")
RUN = a_run_document(
    step=3, steps=60, policy=POLICY, latest=a_step(3, reward_mean=0.5, time=NOW), phase="training",
    first_batch_at=NOW - 30, progress_at=NOW,
)  # fmt: skip
SAMPLER = a_sampler("a", pod="sampler-pod", version=4, step=3, tokens_per_second=10.0)
UNJUDGED = SAMPLER.model_copy(update={"unavailable": {"Judge": "m at http://j cannot be reached"}})
POOLS = (
    Pool(
        meta=a_meta("job-main"),
        spec=SamplerPoolSpec(job="job", replicas=1),
        spec_error="",
        status=SamplerPoolStatus(),
    ),
)
AT_WORK: dict[str, Any] = {"pools": POOLS, "pods": (a_pod(), a_pod("sampler"))}
STARTED = RLJobStatus(attempt=1, start_time="2026-01-01T00:00:00Z")
COMPLETE = Complete(
    outcome=Outcome(kind="Succeeded", reason="Done", message="60 steps.", final_model="s3://f/")
)
DOWN = Reach("False", "StateStoreUnreachable", "db:27017: Connection refused")


def a_situation(
    status: RLJobStatus = STARTED, reading: Reading | None = None, **changes: Any
) -> Situation:
    snapshot = changes.pop("snapshot", None) or a_snapshot(status, **changes.pop("there", AT_WORK))
    found = reading or a_reading(RUN, samplers=(SAMPLER,))
    return Situation(snapshot=snapshot, reading=found, bucket="b", now=NOW, **changes)


def ended(attempt: int = 1, *, counts: bool = True, final: bool = False) -> Ended:
    failure = a_failure(attempt, **({} if counts else {"exit_code": 2, "reason": "ScorerUnknown"}))
    return Ended(failure=failure, counts=counts, retry_at=NOW + 10, final=final)


HALTED = STARTED.model_copy(
    update={
        "attempts": [AttemptStatus(attempt=1, result="Suspended", start_time=format_time(NOW - 60))]
    }
)
LATE = OperationStatus(
    kind="Suspend", step="StoppingTrainer", started_time=format_time(NOW - 500),
    deadline=format_time(NOW - 80),
)  # fmt: skip
AT_REST = Condition(
    type="Ready", status="True", reason="Suspended", observed_generation=1,
    last_transition_time=format_time(NOW),
)  # fmt: skip
RESTING = (dataclasses.replace(POOLS[0], status=SamplerPoolStatus(conditions=[AT_REST])),)
SUCCEEDED = RUN.model_copy(update={"outcome": COMPLETE.outcome})
PENDING = a_pod(phase="Pending", ready=False, unscheduled="0/1 nodes: Insufficient gpu")
LOOPING = Container(name="engine", waiting="CrashLoopBackOff", exit_code=137, message="out")
CRASHING = a_pod("sampler", ready=False, containers=(LOOPING,))

TABLE: dict[str, tuple[Situation, str, str, str]] = {
    "looking at inputs": (
        a_situation(RLJobStatus(), checking=True, there={}), "Pending", "Reconciling",
        "CheckingInputs",
    ),
    "no sampler yet": (
        a_situation(RLJobStatus(), a_reading()), "Starting", "Reconciling", "WaitingForSamplers"
    ),
    "bad input": (
        a_situation(RLJobStatus(), stall=Stall(reason="ModelNotFound", message="m")), "Stalled",
        "Stalled", "ModelNotFound",
    ),
    "begins": (
        a_situation(RLJobStatus(), decision=Begin(attempt=1), there={"pools": POOLS}), "Starting",
        "Reconciling", "TrainerStarting",
    ),
    "no node": (
        a_situation(there={"pools": POOLS, "pods": (PENDING,)}), "Starting", "Reconciling",
        "TrainerStarting",
    ),
    "nothing published": (
        a_situation(reading=a_reading(a_run_document(epoch=1))), "Starting", "Reconciling",
        "PublishingPolicy",
    ),
    "a sampler crashes": (
        a_situation(there={"pools": POOLS, "pods": (a_pod(), CRASHING)}), "Recovering",
        "Reconciling", "SamplersStarting",
    ),
    "at work": (a_situation(), "Running", "Ready", "Running"),
    "the judge is down": (
        a_situation(reading=a_reading(RUN, samplers=(UNJUDGED,))), "Recovering", "Reconciling",
        "ScorerUnavailable",
    ),
    "store down": (
        a_situation(reading=Reading(store=DOWN, bucket=REACHED)), "Recovering", "Reconciling",
        "StateStoreUnreachable",
    ),
    "trainer again": (
        a_situation(
            reading=a_reading(RUN.model_copy(update={"epoch": 2})), there={"pools": POOLS}
        ),
        "Recovering", "Reconciling", "TrainerStarting",
    ),
    "succeeded, its pod still ends": (
        a_situation(
            reading=a_reading(SUCCEEDED),
            there={"pools": POOLS, "pods": (a_pod(phase="Succeeded", ready=False),)},
        ),
        "Running", "Reconciling", "Finishing",
    ),
    "its pod has ended": (
        a_situation(there={"pools": POOLS, "pods": (a_pod(phase="Failed", ready=False),)}),
        "Recovering", "Reconciling", "TrainerEnded",
    ),
    "stopping": (
        a_situation(
            snapshot=a_snapshot(job=a_job_object(STARTED, suspend=True), **AT_WORK),
            decision=Wait(why="Stopping"),
        ),
        "Suspending", "Reconciling", "Stopping",
    ),
    "a pod does not stop": (
        a_situation(
            snapshot=a_snapshot(
                job=a_job_object(STARTED.model_copy(update={"operation": LATE}), suspend=True),
                **AT_WORK,
            ),
            decision=Wait(why="Stopping"),
        ),
        "Suspending", "Stalled", "PodsNotStopping",
    ),
    "suspended": (
        a_situation(
            snapshot=a_snapshot(job=a_job_object(HALTED, suspend=True), pools=RESTING),
            reading=Reading(), decision=Wait(why="Suspended"),
        ),
        "Suspended", "Ready", "Suspended",
    ),
    "suspended, a pod ended but there": (
        a_situation(
            snapshot=a_snapshot(
                job=a_job_object(HALTED, suspend=True), pools=RESTING,
                pods=(a_pod("sampler", phase="Succeeded", ready=False, deleting=True),),
            ),
            reading=Reading(), decision=Wait(why="Suspended"),
        ),
        "Suspending", "Reconciling", "Stopping",
    ),
    "suspended, an evicted pod left behind": (
        a_situation(
            snapshot=a_snapshot(
                job=a_job_object(HALTED, suspend=True), pools=RESTING,
                pods=(a_pod("sampler", phase="Failed", ready=False),),
            ),
            reading=Reading(), decision=Wait(why="Suspended"),
        ),
        "Suspended", "Ready", "Suspended",
    ),
    "suspended from the first": (
        a_situation(
            snapshot=a_snapshot(job=a_job_object(RLJobStatus(), suspend=True)), reading=Reading(),
            decision=Wait(why="Suspended"),
        ),
        "Suspended", "Ready", "Suspended",
    ),
    "resuming": (
        a_situation(HALTED, there={"pools": RESTING}), "Starting", "Reconciling", "Resuming"
    ),
    "failed once": (a_situation(decision=ended()), "Recovering", "Reconciling", "TrainerFailed"),
    "refused by the trainer": (
        a_situation(decision=ended(counts=False)), "Stalled", "Stalled", "ScorerUnknown"
    ),
    "failed for good": (
        a_situation(decision=ended(final=True)), "Failed", "Stalled", "TrainerFailed"
    ),
    "complete": (a_situation(decision=COMPLETE), "Succeeded", "Ready", "Complete"),
    "deleting": (
        a_situation(snapshot=a_snapshot(job=a_job_object(STARTED, meta=a_meta(deleted_at=NOW)))),
        "Terminating", "Reconciling", "Deleting",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("situation", "phase", "state", "reason"), TABLE.values(), ids=TABLE.keys()
)  # fmt: skip
def test_the_table_of_states(situation: Situation, phase: str, state: str, reason: str) -> None:
    after = compute(situation)
    ready = find(after.conditions, "Ready")
    assert ready is not None
    assert (after.phase, ready.reason) == (phase, reason)
    assert ready.status == ("True" if state == "Ready" else "False")
    for kind in ("Reconciling", "Stalled"):
        found = find(after.conditions, kind)
        assert (found is not None and found.status == "True") is (state == kind), kind
    assert after.observed_generation == 1
    assert len({one.type for one in after.conditions}) == len(after.conditions)


@pytest.mark.parametrize(("situation", "phase", "state", "reason"), TABLE.values(), ids=TABLE)
def test_a_second_look_changes_nothing(
    situation: Situation, phase: str, state: str, reason: str
) -> None:
    after = compute(situation)
    meta = situation.snapshot.job.meta
    again = Situation(
        snapshot=a_snapshot(
            job=dataclasses.replace(situation.snapshot.job, status=after, meta=meta),
            pools=situation.snapshot.pools,
            pods=situation.snapshot.pods,
        ),
        reading=situation.reading,
        bucket=situation.bucket,
        stall=situation.stall,
        checking=situation.checking,
        now=NOW + 60,
    )
    assert compute(again) == after


def test_the_cause_is_named() -> None:
    no_node = find(compute(TABLE["no node"][0]).conditions, "Ready")
    assert no_node is not None
    assert no_node.message == "trainer-pod fits no node: 0/1 nodes: Insufficient gpu"
    crash = find(compute(TABLE["a sampler crashes"][0]).conditions, "SamplersReady")
    assert crash is not None
    words = "sampler-pod container engine CrashLoopBackOff, last exit code 137: out"
    assert crash.message == words


def test_failed_goes_with_stalled_and_stays() -> None:
    after = compute(TABLE["failed for good"][0])
    assert {"Failed", "Stalled"} <= {one.type for one in after.conditions}
    assert after.completion_time == format_time(NOW)
    later = compute(a_situation(after, a_reading(RUN), there={}))
    assert (later.phase, later.conditions) == ("Failed", after.conditions)


def test_completion_keeps_the_last_numbers() -> None:
    after = compute(TABLE["complete"][0])
    assert (after.final_model, after.progress.step) == ("s3://f/", 3)
    assert after.samplers.summary == "0/0"
    later = compute(a_situation(after, Reading(), there={}))
    assert later == after


def test_counters() -> None:
    evaluations = [
        EvaluationResult(
            step=3, version=4, temperature=temperature, accuracy=accuracy, prompts=1, tokens=1,
            samples_per_prompt=2, pass_at={"1": accuracy, "2": min(1.0, 2 * accuracy)},
            logprob_gap_mean=0, logprob_gap_max=0, seconds=1,
        )
        for temperature, accuracy in ((1.0, 0.25), (0.7, 0.75))
    ]  # fmt: skip
    skipped: dict[str, Any] = {"skipped": 2, "first_skipped": ["s3://b/d.jsonl line 3 is not JSON"]}
    found = DatasetSummary(split="train", name="d", uri="s3://b/d.jsonl", records=9, **skipped)
    policy = POLICY.model_copy(update={"version": 6, "step": 4})
    latest = a_step(3, reward_mean=0.5, time=NOW, staleness_max=2)
    run = RUN.model_copy(
        update={
            "evaluations": evaluations, "step": 5, "epoch": 3, "policy": policy, "latest": latest,
            "datasets": [found],
        }
    )  # fmt: skip
    behind = a_sampler("b", pod="gone-pod", version=1, step=0)
    after = compute(a_situation(reading=a_reading(run, samplers=(SAMPLER, behind), backlog=7)))
    progress, weights = after.progress, after.weights
    assert (progress.step, progress.steps, progress.backlog) == (5, 60, 7)
    assert (progress.reward, progress.accuracy, progress.pass_at_k) == (0.5, 0.25, 0.5)
    assert progress.seconds_left == 330  # 30 s for 5 steps, 55 to go
    assert progress.staleness == 2
    # One step behind what is published, two behind the trainer.
    assert (weights.version, weights.min_serving_version, weights.lag) == (6, 4, 1)
    assert weights.uri == "s3://b/p/"
    assert after.trainer.restarts == 2
    assert after.samplers.serving == 1
    assert after.datasets == [DatasetStatus(split="train", name="d", records=9, **skipped)]


def test_a_source_has_the_loss_of_its_last_evaluation_in_status() -> None:
    evaluations = [
        EvaluationResult(
            step=step, version=0, dataset=dataset, temperature=1.0, loss=loss, prompts=1, tokens=1,
            logprob_gap_mean=0, logprob_gap_max=0, seconds=1,
        )
        for step, dataset, loss in ((0, "a", 2.5), (0, "b", 1.5), (3, "a", 0.12345))
    ]  # fmt: skip
    found = [
        DatasetSummary(split="validation", name=name, uri="s3://b/d.jsonl", records=9)
        for name in ("a", "b")
    ]
    run = RUN.model_copy(update={"evaluations": evaluations, "datasets": found})
    after = compute(a_situation(reading=a_reading(run)))
    assert [(one.loss, one.accuracy) for one in after.datasets] == [(0.1235, None), (1.5, None)]


def test_losing_most_groups_is_a_condition_with_its_cause_and_remedy() -> None:
    latest = a_step(3, time=NOW, dropped_share=0.75)
    totals = Totals(drops=Drops(by_cause={"stale": 9, "lease": 2, "filtered": 99}))
    run = RUN.model_copy(update={"latest": latest, "totals": totals})
    well = compute(a_situation())
    said = find(well.conditions, "RolloutsFresh")
    assert said is not None
    assert (said.status, said.reason) == ("True", "WithinLimit")
    after = compute(a_situation(well, a_reading(run)))
    said = find(after.conditions, "RolloutsFresh")
    assert said is not None
    assert (said.status, said.reason) == ("False", "TooManyDropped")
    assert "More than 50% of the groups" in said.message
    assert "most as stale" in said.message
    assert "maxStaleness" in said.message
    stands = compute(a_situation(after, Reading(store=DOWN, bucket=REACHED)))
    assert find(stands.conditions, "RolloutsFresh") == said


def test_what_is_known_stands_while_the_store_is_down() -> None:
    before = compute(a_situation())
    after = compute(a_situation(before, Reading(store=DOWN, bucket=REACHED)))
    assert (after.progress, after.weights) == (before.progress, before.weights)
    assert after.trainer.restarts == before.trainer.restarts
    assert find(after.conditions, "PolicyPublished") == find(before.conditions, "PolicyPublished")


def test_a_client_s_changing_words_are_no_change() -> None:
    first = compute(a_situation(reading=Reading(store=DOWN, bucket=REACHED)))
    other = Reach("False", "StateStoreUnreachable", "db:27017: timed out")
    assert compute(a_situation(first, Reading(store=other, bucket=REACHED))) == first


def test_times_change_with_the_status_only() -> None:
    before = compute(a_situation())
    snapshot = a_snapshot(before, **AT_WORK)
    down = Situation(snapshot=snapshot, reading=Reading(store=DOWN, bucket=NOT_ASKED), now=NOW + 60)
    after = compute(down)
    store, trainer = (find(after.conditions, k) for k in ("StateStoreReachable", "TrainerReady"))
    assert store is not None
    assert trainer is not None
    assert store.last_transition_time == format_time(NOW + 60)
    assert trainer.last_transition_time == format_time(NOW)
