"""What samplers can get wrong: no rollouts, unusable ones, evaluations that do not count."""

from __future__ import annotations

import pytest

from rl_contracts.documents.arrays import pack_float32
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.task import Queue, Task, TaskState
from rl_trainer.context.job import Job
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN


def test_a_wait_without_samplers_ends_with_a_summary(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    monkeypatch.setattr(Job, "wait_seconds", property(lambda job: 1.0))
    assert world.attempt() == 1
    outcome = world.outcome
    assert (outcome.kind, outcome.reason) == ("Failed", "NoRollouts")
    assert (
        "0 of 4 are complete. Tasks: 12 pending. Samplers: none has registered." in outcome.message
    )


def test_samplers_that_always_fail_end_the_attempt(make_world: MakeWorld) -> None:
    world = make_world()
    with sampling(TestSampler(world.stores, RUN, fail="the judge is down")):
        assert world.attempt() == 1
    assert world.outcome.reason == "RolloutsFailing"
    assert "the judge is down" in world.outcome.message
    assert "1 ready" in world.outcome.message


def spoiled(rollout: Rollout) -> Rollout:
    logprobs = pack_float32([float("nan")] * rollout.num_tokens)
    return rollout.model_copy(update={"logprobs": logprobs})


def test_rollouts_with_nan_are_never_trained(make_world: MakeWorld) -> None:
    world = make_world()
    with sampling(TestSampler(world.stores, RUN, spoil=spoiled)):
        assert world.attempt() == 1
    assert world.outcome.reason == "RolloutsFailing"
    assert "not finite" in world.outcome.message
    assert world.run.step == 0
    dropped = world.stores.tasks.find(RUN, queue=Queue.CONSUMED, state=TaskState.DEAD)
    assert all("not finite" in task.reason for task in dropped)
    assert dropped


def of_another_version(rollout: Rollout) -> Rollout:
    span = rollout.spans[0].model_copy(update={"version": 99})
    return rollout.model_copy(update={"spans": [span]})


def test_an_evaluation_by_another_policy_does_not_count(make_world: MakeWorld) -> None:
    world = make_world(evaluation={"beforeTraining": True})
    with sampling(TestSampler(world.stores, RUN, spoil=of_another_version)):
        assert world.attempt() == 1
    assert world.outcome.reason == "EvaluationFailed"
    assert "by policy [99], not by 1 alone" in world.outcome.message
    assert world.run.evaluations == []


def test_evaluation_counts_a_prompt_that_is_too_long_and_goes_on(make_world: MakeWorld) -> None:
    world = make_world(steps=1, evaluation={"beforeTraining": True})

    def too_long(task: Task) -> bool:
        return task.queue is Queue.EVALUATION and task.sequence == 1

    with sampling(TestSampler(world.stores, RUN, too_long=too_long)):
        assert world.attempt() == 0
    assert world.run.evaluations
    for result in world.run.evaluations:
        assert (result.skipped, result.prompts) == (1, 9)
    gone = world.stores.tasks.find(RUN, queue=Queue.CONSUMED, state=TaskState.DEAD)
    reasons = {task.reason for task in gone if task.evaluation_version}
    assert reasons == {"the prompt is too long"}
    assert world.stores.tasks.left(RUN, queue=Queue.EVALUATION) == []


def test_evaluation_without_a_prompt_that_can_be_processed_fails(make_world: MakeWorld) -> None:
    world = make_world(steps=1, evaluation={"beforeTraining": True})
    with sampling(
        TestSampler(world.stores, RUN, too_long=lambda task: task.queue is Queue.EVALUATION)
    ):
        assert world.attempt() == 1
    assert world.outcome.reason == "EvaluationFailed"
    assert "can be processed, the first because: the prompt is too long" in world.outcome.message
    assert "maxContextTokens" in world.outcome.message
