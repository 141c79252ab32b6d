"""A whole run against the real stores, with samplers that sample what was published."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rl_contracts.documents.batch import BatchState
from rl_contracts.documents.step_metrics import StepMetrics
from rl_contracts.documents.task import Cause, Queue, Task, TaskState
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.durability.crash import train_over_crashes
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World
from tests.examples import first
from tests.waiting import HUNG_SECONDS, until

STEPS = 24
GROUP_SIZE = 8
EVALUATION = {"everySteps": 12, "temperatures": [1.0, 0.7], "samplesPerPrompt": 3}


def learn(make_world: MakeWorld) -> tuple[World, list[TestSampler], float]:
    """A run that has ended, its samplers, and the seconds that it took."""
    world = make_world(
        steps=STEPS,
        optimizer={"learningRate": 2e-2},
        checkpoint={"everySteps": 5},
        evaluation=EVALUATION,
    )
    # Of 32 answers of a fresh model two are right on average: hardly a step is without signal.
    algorithm = {"groupSize": GROUP_SIZE, "offPolicy": {"maxStaleness": 2}}
    world.spec = world.spec.model_validate(
        world.spec.model_dump(by_alias=True) | {"algorithm": algorithm}
    )
    world.write_mounts()
    samplers = [
        TestSampler(world.stores, RUN, name=name, seed=seed) for seed, name in enumerate("ab")
    ]
    began = time.monotonic()
    with sampling(*samplers):
        assert world.attempt() == 0
    return world, samplers, time.monotonic() - began


def test_a_run_learns_and_leaves_everything_that_the_contract_names(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    world, samplers, seconds = learn(make_world)
    run, report = world.run, world.report()
    assert (run.step, run.trainers, world.outcome.kind) == (STEPS, 1, "Succeeded")
    world.check_lineage()

    # It learned, and trainer and samplers agree on what the same weights say.
    rewards = [fmean(rollout.reward for rollout in step) for step in world.trained()]
    assert report["accuracyAfter"] >= report["accuracyBefore"] + 0.3, rewards
    assert [(evaluation.step, evaluation.temperature) for evaluation in world.evaluations] == [
        (step, temperature) for step in (0, 12, 24) for temperature in (1.0, 0.7)
    ]
    assert all(evaluation.logprob_gap_mean < 1e-5 for evaluation in world.evaluations)
    assert all(
        evaluation.prompts == 10 and evaluation.tokens >= 30 for evaluation in world.evaluations
    )
    for evaluation in world.evaluations:
        assert (evaluation.samples_per_prompt, list(evaluation.pass_at)) == (3, ["1", "2", "3"])
        assert evaluation.pass_at["1"] == pytest.approx(evaluation.accuracy)  # rewards are 0 or 1
        assert evaluation.pass_at["1"] <= evaluation.pass_at["2"] <= evaluation.pass_at["3"]

    # Every version was published in order; the newest few and the durable state are kept.
    assert run.policy is not None
    assert run.policy.version == run.last_version == report["policyVersions"]
    assert run.policy.step == STEPS
    assert run.resolved is not None
    assert (run.resolved.gradient_checkpointing, run.resolved.processes) == (False, 1)
    records = world.stores.policies.of_run(RUN)
    kept = [record.version for record in records if record.marked_at is None]
    assert kept == [run.last_version - 2 + n for n in range(3)]
    assert {record.parent for record in records} == {record.version - 1 for record in records}
    prefix = world.stores.run_prefix(RUN)
    stored = {
        stored_object.key.removeprefix(prefix)
        for stored_object in world.stores.objects.list(prefix)
    }
    assert len({key.split("/")[1] for key in stored if key.startswith("policies/")}) == len(records)
    assert len({key.split("/")[1] for key in stored if key.startswith("checkpoints/")}) == 2
    assert run.durable is not None
    assert run.durable.step == STEPS
    states = {batch.state for batch in world.stores.batches.of_run(RUN)}
    assert states == {BatchState.DURABLE}
    assert all(world.stores.tasks.total(RUN, queue=queue) == 0 for queue in list(Queue)[:2])

    # What is left to read.
    lines = world.newest("metrics.jsonl").decode().splitlines()
    metrics = [StepMetrics.model_validate_json(line) for line in lines]
    assert [metric.step for metric in metrics] == list(range(1, STEPS + 1))
    assert run.latest == metrics[-1]
    assert run.totals.tokens_trained == sum(metric.tokens for metric in metrics)
    assert run.totals.rollouts_trained == STEPS * 4 * GROUP_SIZE
    assert 0 < report["trainerSeconds"] < seconds
    assert report["maxStalenessSeen"] <= 2
    assert report["restarts"] == 0

    # The final model loads by itself and is the one that was trained and served.
    for key in sorted(stored):
        if key.startswith("final/"):
            (tmp_path / Path(key).name).write_bytes(world.get(key))
    final = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert final.dtype == torch.float32
    served = max(samplers, key=lambda sampler: sampler.held.version if sampler.held else 0)
    assert served.held == run.policy
    given = torch.tensor([[13, 3, 11, 14]])
    with torch.no_grad():
        assert torch.equal(final(given).logits, served._model(given).logits)
    assert AutoTokenizer.from_pretrained(tmp_path).chat_template
    assert "library_name: transformers" in (tmp_path / "README.md").read_text()
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "float32"

    # A second start finds nothing to do and changes nothing.
    assert world.attempt() == 0
    assert world.run == run


def test_stale_groups_are_dropped_and_replaced(make_world: MakeWorld) -> None:
    world = make_world(steps=6)
    lazy = TestSampler(world.stores, RUN, name="lazy", hold=1)
    keen = TestSampler(world.stores, RUN, name="keen", seed=1)
    with sampling(lazy, keen):
        assert world.attempt() == 0
    world.check_lineage()
    assert lazy.served == {1}
    assert world.run.totals.dropped_stale > 0
    assert world.run.totals.max_staleness_seen <= 2


@pytest.mark.soak
def test_a_rollout_is_trained_as_often_as_declared_and_over_crashes(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(steps=8, checkpoint={"everySteps": 2})
    off_policy = {"maxStaleness": 4, "maxTrainings": 3, "retrainInterval": 2}
    algorithm = {"groupSize": 4, "offPolicy": off_policy}
    world.spec = world.spec.model_validate(
        world.spec.model_dump(by_alias=True) | {"algorithm": algorithm}
    )
    world.write_mounts()
    # Two whole steps, then half of what a step takes: the other half has to be trained again.
    with sampling(TestSampler(world.stores, RUN, most=lambda step: 8 + 2 * max(0, step - 1))):
        train_over_crashes(world, monkeypatch, first=100, later=20)
    steps: dict[str, list[int]] = {}
    for batch in world.stores.batches.lineage(world.run.head_batch):
        assert len({member.rollout for member in batch.members}) == len(batch.members)
        for member in batch.members:
            steps.setdefault(member.rollout, []).append(batch.step)
    assert max(len(step) for step in steps.values()) > 1, "nothing was trained again"
    assert all(len(step) <= 3 for step in steps.values())
    apart = [
        after - earlier for each in steps.values() for earlier, after in itertools.pairwise(each)
    ]
    assert min(apart) >= 2
    assert world.run.totals.max_staleness_seen <= 4


def test_groups_without_signal_are_replaced(make_world: MakeWorld) -> None:
    world = make_world(steps=3)
    algorithm = {
        "groupSize": 8,
        "estimator": {"kind": "RLOO"},
        "loss": {"kind": "GSPO"},
        "shaping": {"dynamicSampling": True, "balanceSample": True},
        "offPolicy": {"maxStaleness": 2, "correction": {"kind": "MIS"}},
    }
    training = {"promptsPerUpdate": 2, "passesPerStep": 2}
    dumped = world.spec.model_dump(by_alias=True)
    world.spec = world.spec.model_validate(
        dumped | {"algorithm": algorithm, "training": dumped["training"] | training}
    )
    world.write_mounts()
    with sampling(TestSampler(world.stores, RUN), TestSampler(world.stores, RUN, name="b", seed=1)):
        assert world.attempt() == 0
    world.check_lineage()
    for rollouts in world.trained():
        rewards: dict[str, set[float]] = {}
        for rollout in rollouts:
            rewards.setdefault(rollout.task, set()).add(rollout.reward)
        assert [len(seen) for seen in rewards.values()] == [2] * 4
    lines = world.newest("metrics.jsonl").decode().splitlines()
    metrics = [StepMetrics.model_validate_json(line) for line in lines]
    assert sum(metric.dropped_no_signal for metric in metrics) > 0
    # Of eight answers with a single right one, balancing leaves three.
    assert all(12 <= metric.rollouts < 32 for metric in metrics)


REWARD_KL = {
    "estimator": {"kind": "REINFORCEPlusPlus", "gamma": 0.9},
    "kl": {
        "placement": "Reward",
        "estimator": "Full",
        "coefficient": 0.1,
        "controller": {"kind": "Adaptive", "target": 0.01, "horizon": 100},
        "refreshEverySteps": 2,
    },
}
MAX_ENT = {
    "estimator": {"kind": "MaxEnt", "maxent": {"tuneTau": {"targetEntropy": 0.5}}},
    "loss": {"kind": "MaxEnt", "clipCoefficient": 1.0},
    "kl": {"coefficient": 0.1, "controller": {"kind": "Adaptive", "target": 0.1, "horizon": 100}},
    "entropyCoefficient": 0.01,
}


GAE = {
    "estimator": {"kind": "GAE", "lam": 0.95},
    "critic": {"learningRate": 1e-3, "warmupSteps": 4, "valueClip": 0.2},
    "kl": {"coefficient": 0.1, "controller": {"kind": "Adaptive", "target": 0.1, "horizon": 100}},
}


@pytest.mark.parametrize(
    "algorithm", first(1, [GAE, REWARD_KL, MAX_ENT]), ids=["GAE", "KL in the reward", "MaxEnt"]
)
def test_controller_critic_and_reference_are_restored_and_replayed(
    make_world: MakeWorld, algorithm: dict[str, Any]
) -> None:
    """The second attempt ends with the weights of a run that was never interrupted."""
    world = make_world(steps=6, checkpoint={"everySteps": 3})
    world.spec = world.spec.model_validate(
        world.spec.model_dump(by_alias=True)
        | {"algorithm": {"groupSize": 4, "offPolicy": {"maxStaleness": 1}} | algorithm}
    )
    world.write_mounts()
    samplers = [
        TestSampler(world.stores, RUN, name=name, seed=seed, rest_at=4)
        for seed, name in enumerate("ab")
    ]
    with sampling(*samplers):
        process = world.forked()
        until(world.at_step(4), what="step 4")
        process.kill()
        process.join(HUNG_SECONDS)
        for sampler in samplers:
            sampler.rest_at = 0
        assert world.attempt() == 0
    assert world.run.trainers == 2
    world.check_lineage()
    lines = world.newest("metrics.jsonl").decode().splitlines()
    metrics = [StepMetrics.model_validate_json(line) for line in lines]
    coefficients = [metric.kl_coefficient for metric in metrics]
    assert None not in coefficients
    warmup = algorithm.get("critic", {}).get("warmupSteps", 0)
    assert len(set(coefficients)) == 6 - warmup


@pytest.mark.soak
def test_moving_baselines_go_on_where_a_killed_trainer_left_them(make_world: MakeWorld) -> None:
    """Step 4 is in no checkpoint: its baselines come from the batch that is trained again."""
    world = make_world(steps=6, checkpoint={"everySteps": 3})
    rae = {"estimator": {"kind": "RAE"}, "groupSize": 4, "offPolicy": {"maxStaleness": 1}}
    world.spec = world.spec.model_validate(
        world.spec.model_dump(by_alias=True) | {"algorithm": rae}
    )
    world.write_mounts()
    sampler = TestSampler(
        world.stores, RUN, rest_at=4, reward=lambda task, tokens: task.sequence % 3
    )
    with sampling(sampler):
        process = world.forked()
        until(world.at_step(4), what="step 4")
        process.kill()
        process.join(HUNG_SECONDS)
        sampler.rest_at = 0
        assert world.attempt() == 0
    world.check_lineage()
    source, baseline = world.spec.data.by_split["train"][0].name, 0.0
    for batch, rollouts in zip(
        world.stores.batches.lineage(world.run.head_batch), world.trained(), strict=True
    ):
        for member, rollout in zip(batch.members, rollouts, strict=True):
            assert member.advantage == pytest.approx(rollout.reward - baseline)
            baseline = 0.95 * baseline + 0.05 * rollout.reward
        assert batch.reward_baselines == pytest.approx({source: baseline})
    assert baseline > 0


def test_zero_staleness_alternates_sampling_and_training(make_world: MakeWorld) -> None:
    world = make_world(steps=3)
    algorithm = {"groupSize": 4, "offPolicy": {"maxStaleness": 0}}
    world.spec = world.spec.model_validate(
        world.spec.model_dump(by_alias=True) | {"algorithm": algorithm}
    )
    world.write_mounts()
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    world.check_lineage()
    assert world.run.totals.max_staleness_seen == 0


class Patchy(TestSampler):
    """Gives every fourth group up, and of every second one leaves out the last two members."""

    def _answer(self, task: Task) -> None:
        if task.sequence % 4 == 0:
            self.stores.tasks.hand_back(task, reason="the judge is down")
            return
        rollouts = self._rollouts(task)
        kept = rollouts[:2] if task.sequence % 2 else rollouts
        self.stores.rollouts.put(kept)
        self.stores.tasks.complete(task, rollouts=[rollout.id for rollout in kept])


def test_dead_groups_make_room_and_small_ones_train(make_world: MakeWorld) -> None:
    world = make_world(steps=3)
    rollouts = {
        "maxAttempts": 1,
        "completion": {"kind": "Minimum", "minimum": 2, "deadlineSeconds": 60},
    }
    world.spec = world.spec.model_validate(
        world.spec.model_dump(by_alias=True) | {"rollouts": rollouts}
    )
    world.write_mounts()
    with sampling(Patchy(world.stores, RUN)):
        assert world.attempt() == 0
    world.check_lineage()
    assert world.run.totals.drops.by_cause[Cause.FAILED] > 0
    sizes = {
        len([rollout for rollout in rollouts if rollout.task == task])
        for rollouts in world.trained()
        for task in {rollout.task for rollout in rollouts}
    }
    assert sizes == {2, 4}
    dead = world.stores.tasks.find(RUN, queue=Queue.CONSUMED, state=TaskState.DEAD)
    assert {task.sequence % 4 for task in dead if task.cause is Cause.FAILED} == {0}
