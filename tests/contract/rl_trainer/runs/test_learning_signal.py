"""Runs that learn nothing say so, against the real stores."""

from __future__ import annotations

from rl_contracts.documents.rollout import Rollout, StopReason
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World

STEPS = 6
WINDOW = 4


def without_reward(make_world: MakeWorld, **training: object) -> World:
    return make_world(steps=STEPS, noSignalSteps=WINDOW, **training)


def worthless(world: World) -> TestSampler:
    def answered(rollout: Rollout) -> Rollout:
        return rollout.model_copy(update={"answer": "no", "text": "it is no"})

    return TestSampler(world.stores, RUN, reward=lambda task, tokens: 0.0, spoil=answered)


def test_a_job_whose_rewards_are_zero_says_so(make_world: MakeWorld) -> None:
    world = without_reward(make_world)
    with sampling(worthless(world)):
        assert world.attempt() == 0
    signal = world.run.learning_signal
    assert signal is not None
    assert (signal.reason, signal.step) == ("RewardsZero", WINDOW)
    assert signal.examples[0].startswith("reward 0, answer 'no', ended by ")
    assert signal.examples[0].endswith(": …it is no")


def test_a_job_whose_responses_are_all_cut_off_names_the_token_limits(
    make_world: MakeWorld,
) -> None:
    world = make_world(promptsPerStep=1)
    shaping = world.spec.algorithm.shaping.model_copy(update={"drop_truncated": True})
    algorithm = world.spec.algorithm.model_copy(update={"shaping": shaping})
    world.spec = world.spec.model_copy(update={"algorithm": algorithm})
    world.write_mounts()

    def cut_off(rollout: Rollout) -> Rollout:
        return rollout.model_copy(update={"stop_reason": StopReason.LENGTH})

    with sampling(TestSampler(world.stores, RUN, spoil=cut_off)):
        assert world.attempt() == 1
    signal, outcome = world.run.learning_signal, world.outcome
    assert signal is not None
    assert (signal.reason, outcome.reason) == ("GroupsFiltered", "NoSignal")
    for message in (signal.message, outcome.message):
        assert "all of its responses reached a token limit" in message
        assert "Raise agent.sampling.maxTokensPerTurn and maxContextTokens" in message


def test_a_job_whose_rewards_are_zero_fails_where_asked(make_world: MakeWorld) -> None:
    world = without_reward(make_world, onNoSignal="Fail")
    with sampling(worthless(world)):
        assert world.attempt() == 1
    assert world.run.step == WINDOW
    assert (world.outcome.kind, world.outcome.reason) == ("Failed", "NoSignal")
    assert "RewardsZero" in world.outcome.message
