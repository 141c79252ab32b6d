"""Numbers and conditions beside the headline: what is known stands, and changes once."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

from rl_contracts.capacity.fit import Fit
from rl_contracts.documents.evaluation import EvaluationResult
from rl_contracts.documents.run import DatasetSummary, LearningSignal, Notice, Resolved, Totals
from rl_contracts.documents.step_metrics import Drops
from rl_contracts.spec.status import DatasetStatus, ResolvedStatus
from rl_operator.kube.conditions import find
from rl_operator.kube.timestamps import format_time
from rl_operator.process.events import of_change
from rl_operator.state.progress import NOT_CHECKED, REACHED, Reading
from rl_operator.status.job_conditions import compute
from rl_operator.status.learning_signal import REASONS
from rl_operator.status.status_input import StatusInput
from rl_operator.validation.device_memory import DeviceMemory
from rl_trainer.algorithm.credit import EQUAL
from rl_trainer.algorithm.learning_signal import CHECKS, find_filtered
from tests.samples.documents import a_sampler, a_step
from tests.unit.rl_operator.builders import (
    NOW,
    a_job_object,
    a_reading,
    a_snapshot,
)
from tests.unit.rl_operator.status_inputs import (
    AT_WORK,
    DOWN,
    POLICY,
    RUN,
    SAMPLER,
    STARTED,
    a_status_input,
)


def test_counters() -> None:
    evaluations = [
        EvaluationResult(
            step=3,
            version=4,
            temperature=temperature,
            accuracy=accuracy,
            prompts=1,
            tokens=1,
            samples_per_prompt=2,
            pass_at={"1": accuracy, "2": min(1.0, 2 * accuracy)},
            logprob_gap_mean=0,
            logprob_gap_max=0,
            seconds=1,
        )
        for temperature, accuracy in ((1.0, 0.25), (0.7, 0.75))
    ]
    skipped: dict[str, Any] = {"skipped": 2, "first_skipped": ["s3://b/d.jsonl line 3 is not JSON"]}
    dataset = DatasetSummary(split="train", name="d", uri="s3://b/d.jsonl", records=9, **skipped)
    policy = POLICY.model_copy(update={"version": 6, "step": 4})
    latest = a_step(3, reward_mean=0.5, time=NOW, staleness_max=2)
    run = RUN.model_copy(
        update={
            "evaluations": evaluations,
            "step": 5,
            "trainers": 3,
            "notices": [Notice(time=NOW, reason="CheckpointMissing", message="Step 4 is gone.")],
            "policy": policy,
            "latest": latest,
            "datasets": [dataset],
            "resolved": Resolved(
                max_tokens_per_microbatch=4096, gradient_checkpointing=True, processes=8
            ),
        }
    )
    behind = a_sampler("b", pod="gone-pod", version=1, step=0)
    after = compute(a_status_input(reading=a_reading(run, samplers=(SAMPLER, behind), backlog=7)))
    progress, weights = after.progress, after.weights
    assert (progress.step, progress.steps, progress.backlog) == (5, 60, 7)
    assert (progress.reward, progress.accuracy, progress.pass_at_k) == (0.5, 0.25, 0.5)
    assert progress.seconds_left == 330  # 30 s for 5 steps, 55 to go
    assert progress.staleness == 2
    # One step behind what is published, two behind the trainer.
    assert (weights.version, weights.min_serving_version, weights.lag) == (6, 4, 1)
    assert weights.uri == "s3://b/p/"
    assert after.trainer.restarts == 2
    (notice,) = after.notices
    assert (notice.reason, notice.message) == ("CheckpointMissing", "Step 4 is gone.")
    assert after.samplers.serving == 1
    assert after.resolved == ResolvedStatus(
        max_tokens_per_microbatch=4096, gradient_checkpointing=True, processes=8
    )
    assert after.datasets == [DatasetStatus(split="train", name="d", records=9, **skipped)]


def test_a_source_has_the_loss_of_its_last_evaluation_in_status() -> None:
    evaluations = [
        EvaluationResult(
            step=step,
            version=0,
            dataset=dataset,
            temperature=1.0,
            loss=loss,
            prompts=1,
            tokens=1,
            logprob_gap_mean=0,
            logprob_gap_max=0,
            seconds=1,
        )
        for step, dataset, loss in ((0, "a", 2.5), (0, "b", 1.5), (3, "a", 0.12345))
    ]
    datasets = [
        DatasetSummary(split="validation", name=name, uri="s3://b/d.jsonl", records=9)
        for name in ("a", "b")
    ]
    run = RUN.model_copy(update={"evaluations": evaluations, "datasets": datasets})
    after = compute(a_status_input(reading=a_reading(run)))
    assert [(dataset.loss, dataset.accuracy) for dataset in after.datasets] == [
        (0.1235, None),
        (1.5, None),
    ]


def test_losing_most_groups_is_a_condition_with_its_cause_and_remedy() -> None:
    latest = a_step(3, time=NOW, dropped_share=0.75)
    totals = Totals(drops=Drops(by_cause={"stale": 9, "lease": 2, "filtered": 99}))
    run = RUN.model_copy(update={"latest": latest, "totals": totals})
    well = compute(a_status_input())
    condition = find(well.conditions, "RolloutsFresh")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "WithinLimit")
    after = compute(a_status_input(well, a_reading(run)))
    condition = find(after.conditions, "RolloutsFresh")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "TooManyDropped")
    assert "More than 50% of the groups" in condition.message
    assert "most of them as stale" in condition.message
    assert "maxStaleness" in condition.message
    stands = compute(a_status_input(after, Reading(store=DOWN, bucket=REACHED)))
    assert find(stands.conditions, "RolloutsFresh") == condition


def test_steps_without_a_learning_signal_are_a_condition_and_an_event_with_examples() -> None:
    signal = LearningSignal(
        reason="RewardsZero",
        message="All rewards are 0. Check reward.answerSchema.",
        step=10,
        examples=["reward 0, no answer: …the sum\nis Bearer abcdefghijklmnopqrstuvwxyz0123456789"],
    )
    well = compute(a_status_input(reading=a_reading(RUN)))
    assert find(well.conditions, "LearningSignal") is None  # too few steps to judge
    run = RUN.model_copy(update={"learning_signal": signal})
    after = compute(a_status_input(well, a_reading(run)))
    condition = find(after.conditions, "LearningSignal")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "RewardsZero")
    assert (
        "Check reward.answerSchema. Example 1: reward 0, no answer: …the sum is"
        in condition.message
    )
    assert "abcdefghijklmnop" not in condition.message
    notes = [note for note in of_change(well, after) if note.reason == "RewardsZero"]
    assert [note.type for note in notes] == ["Warning"]
    assert of_change(after, after) == []
    stands = compute(a_status_input(after, Reading(store=DOWN, bucket=REACHED)))
    assert find(stands.conditions, "LearningSignal") == condition
    better = compute(a_status_input(after, a_reading(RUN.model_copy(update={"step": 12}))))
    condition = find(better.conditions, "LearningSignal")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "Present")


def test_a_training_that_may_not_fit_is_a_condition_and_an_event() -> None:
    message = "By formula a step needs 79 GiB on each GPU, and it has 80 GiB."
    fit = Fit(verdict="MayNotFit", message=message, remedy="To need less: train adapters.")
    before = compute(a_status_input())
    assert find(before.conditions, "MemoryFits") is None
    after = compute(a_status_input(memory=DeviceMemory(fit=fit)))
    condition = find(after.conditions, "MemoryFits")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "MayNotFit")
    assert condition.message == f"{message} {fit.remedy}"
    notes = of_change(before, after)
    assert [(note.reason, note.type) for note in notes] == [("MayNotFit", "Warning")]
    later = compute(a_status_input(after))  # with an attempt the model is not read again
    assert find(later.conditions, "MemoryFits") == condition
    assert of_change(after, later) == []


def test_each_reason_that_a_trainer_reports_is_a_reason_of_the_condition() -> None:
    filtered = find_filtered(Counter({EQUAL: 99}), per_step=1, step=1, objective="RL")
    assert filtered is not None
    reported = {reason for checks in CHECKS.values() for reason, _, _ in checks}
    assert set(REASONS) == reported | {filtered.reason}


def test_a_reason_that_no_release_knows_is_no_reason_of_a_condition() -> None:
    signal = LearningSignal(reason="x y", message="m" * 9000, step=10, examples=["e" * 9000] * 9)
    run = RUN.model_copy(update={"learning_signal": signal})
    condition = find(compute(a_status_input(reading=a_reading(run))).conditions, "LearningSignal")
    assert condition is not None
    assert condition.reason == "NoSignal"
    assert len(condition.message) <= 1024


def test_known_results_stay_while_the_store_is_down() -> None:
    before = compute(a_status_input())
    after = compute(a_status_input(before, Reading(store=DOWN, bucket=REACHED)))
    unknown = {"min_serving_version": None, "lag": None}
    now_only = {"phase": "", "backlog": None, "tokens_per_second": None, "seconds_left": None}
    assert after.progress == before.progress.model_copy(update=now_only)
    assert after.weights == before.weights.model_copy(update=unknown)
    assert after.trainer.restarts == before.trainer.restarts
    assert find(after.conditions, "PolicyPublished") == find(before.conditions, "PolicyPublished")


def test_serving_is_unknown_while_the_store_is_down() -> None:
    before = compute(a_status_input())
    assert (before.samplers.serving, before.weights.lag) == (1, 0)
    away = compute(a_status_input(before, Reading(store=DOWN, bucket=REACHED)))
    assert (away.samplers.ready, away.samplers.serving, away.weights.lag) == (1, None, None)
    current = find(away.conditions, "WeightsCurrent")
    assert current is not None
    assert (current.status, current.reason) == ("Unknown", "StateStoreUnreachable")
    assert "is unknown while the state store does not answer" in current.message
    back = compute(a_status_input(away))
    assert (back.samplers.serving, back.weights.lag) == (1, 0)
    assert find(back.conditions, "WeightsCurrent") == find(before.conditions, "WeightsCurrent")


def test_no_sampler_serves_without_pods() -> None:
    before = compute(a_status_input())
    nobody = a_status_input(before, Reading(store=DOWN, bucket=REACHED))
    snapshot = dataclasses.replace(nobody.snapshot, pods=())
    away = compute(dataclasses.replace(nobody, snapshot=snapshot))
    assert (away.samplers.serving, away.weights.lag) == (0, 0)
    assert away.weights.version == before.weights.version
    current = find(away.conditions, "WeightsCurrent")
    assert current is not None
    assert (current.status, current.reason) == ("False", "NoServingSampler")


def test_times_change_with_the_status_only() -> None:
    before = compute(a_status_input())
    snapshot = a_snapshot(before, **AT_WORK)
    down = StatusInput(
        snapshot=snapshot, reading=Reading(store=DOWN, bucket=NOT_CHECKED), now=NOW + 60
    )
    after = compute(down)
    store, trainer = (find(after.conditions, k) for k in ("StateStoreReachable", "TrainerReady"))
    assert store is not None
    assert trainer is not None
    assert store.last_transition_time == format_time(NOW + 60)
    assert trainer.last_transition_time == format_time(NOW)


def test_minimum_above_the_size_of_a_pool_without_autoscaling_is_on_the_job() -> None:
    """Such an edit changes no pool; without the message it would have no effect in silence."""
    template = {"autoscaling": {"minReplicas": 2}}
    job = a_job_object(STARTED, samplers=[{"name": "main", "template": template}])
    after = compute(a_status_input(parts={**AT_WORK, "job": job}))
    ready = find(after.conditions, "SamplersReady")
    assert ready is not None
    assert (ready.status, ready.message) == (
        "True",
        "All sampler pods are ready. spec.samplers[0].template.autoscaling.minReplicas = 2 is the "
        "size of a new pool only: SamplerPool job-main has 1. Use kubectl scale samplerpool to "
        "change that.",
    )


def test_a_trainer_of_a_suspended_job_is_shown_until_its_pod_has_ended() -> None:
    job = a_job_object(STARTED, suspend=True)
    while_it_runs = compute(a_status_input(parts={**AT_WORK, "job": job}))
    assert while_it_runs.trainer.summary == "1/1"
    afterwards = compute(a_status_input(parts={"job": job}))
    assert afterwards.trainer.summary == "0/0"
