"""Runs that train nothing, against the real stores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from rl_contracts.documents.evaluation import EvaluationResult
from rl_contracts.documents.run import Sampled
from rl_contracts.documents.task import Queue, TaskState
from rl_contracts.stores import reports
from rl_contracts.stores.runs import RunStore
from rl_contracts.stores.tasks import TaskStore
from rl_trainer.rollouts import evaluate
from rl_trainer.rollouts.sampling import Windows
from tests.contract.rl_trainer import world as worlds
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.durability.crash import Crashed
from tests.contract.rl_trainer.runs.test_adapters import AdapterSampler
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World
from tests.models.tiny_model import save_tiny

NEXT = "33333333-4444"
SAMPLES = 3
TEMPERATURES = [1.0, 0.7, 0.0]


def evaluation(make_world: MakeWorld) -> World:
    """An evaluation on two sources."""
    world = make_world()
    root = world.spec.model.uri.removesuffix("model")
    sources = {
        "validation": [{"name": "digits", "uri": f"{root}test.jsonl"}],
        "test": [{"name": "held-out", "uri": f"{root}train.jsonl"}],
    }
    section = {"temperatures": TEMPERATURES, "samplesPerPrompt": SAMPLES}
    spec = world.spec.model_dump(by_alias=True) | {
        "algorithm": {"objective": "Evaluation"},
        "data": sources,
        "training": {"precision": "FP32", "maxTokensPerMicrobatch": 64, "evaluation": section},
    }
    world.spec = world.spec.model_validate(spec)
    world.write_mounts()
    return world


def check(world: World, results: list[EvaluationResult]) -> None:
    """Everything was measured once, by one version."""
    assert [(result.split, result.dataset, result.temperature) for result in results] == [
        (split, dataset, temperature)
        for split, dataset in (("validation", "digits"), ("test", "held-out"))
        for temperature in TEMPERATURES
    ]
    for result in results:
        samples = SAMPLES if result.temperature else 1
        assert (result.step, result.version, result.prompts) == (0, 1, 10)
        assert result.samples_per_prompt == samples
        assert result.versions == {"1": result.tokens}
        assert list(result.pass_at) == [str(k + 1) for k in range(samples)]
        assert result.pass_at["1"] == pytest.approx(result.accuracy)
        assert result.logprob_gap_mean < 1e-5


def test_one_policy_is_evaluated_and_nothing_is_trained(make_world: MakeWorld) -> None:
    world = evaluation(make_world)
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    run = world.run
    check(world, run.evaluations)
    assert (run.step, run.steps, run.head_batch, run.last_version) == (0, 0, None, 1)
    assert (world.outcome.kind, world.outcome.reason) == ("Succeeded", "Evaluated")
    assert world.outcome.final_model == ""
    named = [f"digits (validation, temperature {temperature:g}) " for temperature in TEMPERATURES]
    assert [name for name in named if name not in world.outcome.message] == []
    reported = [
        EvaluationResult.model_validate(evaluation) for evaluation in world.report()["evaluations"]
    ]
    assert reported == run.evaluations
    prefix = world.stores.run_prefix(RUN)
    folders = {
        stored_object.key.removeprefix(prefix).split("/")[0]
        for stored_object in world.stores.objects.list(prefix)
    }
    assert folders == {"policies", "reports"}
    assert world.stores.batches.of_run(RUN) == []
    assert not world.stores.tasks.find(RUN, queue=Queue.TRAIN, state=TaskState.PENDING)


def test_a_resumed_evaluation_measures_only_missing_sources(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = evaluation(make_world)
    measured = evaluate.evaluate
    asked: list[list[str]] = []

    def once(job: Any, learner: Any, datasets: Any, **more: Any) -> list[EvaluationResult]:
        asked.append([dataset.source.name for dataset in datasets])
        if len(asked) == 2:
            raise KeyboardInterrupt
        return measured(job, learner, datasets, **more)

    monkeypatch.setattr(evaluate, "evaluate", once)
    with sampling(TestSampler(world.stores, RUN)):
        with pytest.raises(KeyboardInterrupt):
            world.attempt()
        measured_first = [evaluation.dataset for evaluation in world.run.evaluations]
        assert measured_first == ["digits"] * len(TEMPERATURES)
        assert world.attempt() == 0
    assert asked == [["digits"], ["held-out"], ["held-out"]]
    check(world, world.run.evaluations)
    assert world.run.trainers == 2
    assert json.loads(world.newest(reports.REPORT))["policyVersions"] == 1


@pytest.mark.soak
def test_a_trainer_that_dies_before_it_retires_the_prompts_of_recorded_results_measures_them_once(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = evaluation(make_world)

    def dying(self: TaskStore, tasks: Sequence[str]) -> None:
        raise Crashed

    with sampling(TestSampler(world.stores, RUN)):
        with monkeypatch.context() as patched:
            patched.setattr(TaskStore, "retire", dying)
            with pytest.raises(Crashed):
                world.attempt()
        recorded = world.run.evaluations
        assert [result.dataset for result in recorded] == ["digits"] * len(TEMPERATURES)
        assert world.attempt() == 0
    assert world.run.evaluations[: len(recorded)] == recorded
    check(world, world.run.evaluations)
    assert world.stores.tasks.total(RUN, queue=Queue.EVALUATION) == 0


@pytest.mark.soak
def test_an_evaluation_whose_policy_was_lost_with_the_bucket_publishes_it_again(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = evaluation(make_world)
    with sampling(TestSampler(world.stores, RUN)):
        with monkeypatch.context() as patched:
            patched.setattr(evaluate, "evaluate", interrupted)
            with pytest.raises(KeyboardInterrupt):
                world.attempt()
        policy = world.run.policy
        assert policy is not None
        world.stores.objects.delete_prefix(policy.prefix)
        assert world.attempt() == 0
    assert {result.version for result in world.run.evaluations} == {2}
    (notice,) = world.run.notices
    assert notice.reason == "PolicyMissing"
    assert policy.prefix in notice.message


def interrupted(*_: Any, **__: Any) -> list[EvaluationResult]:
    raise KeyboardInterrupt


def as_evaluation(world: World, **resume: str) -> None:
    """Change the manifest to measure what another run's checkpoint holds."""
    spec = world.spec.model_dump(by_alias=True) | {
        "algorithm": {"objective": "Evaluation"},
        "data": {"validation": world.spec.data.model_dump(by_alias=True)["validation"]},
        "training": {
            "precision": "FP32",
            "maxTokensPerMicrobatch": 64,
            "checkpoint": {"resume": resume},
        },
    }
    world.spec = world.spec.model_validate(spec)
    world.write_mounts()


@pytest.mark.soak
def test_another_runs_checkpoint_is_evaluated_whatever_trained_it(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(steps=3, optimizer={"kind": "AdamW8bit", "learningRate": 3e-3})
    algorithm = {"groupSize": 4, "estimator": {"kind": "GAE"}, "critic": {}}
    spec = world.spec.model_dump(by_alias=True) | {"algorithm": algorithm}
    world.spec = world.spec.model_validate(spec)
    world.write_mounts()
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    durable, trained = world.run.durable, world.final_weights()
    assert durable is not None
    monkeypatch.setattr(worlds, "RUN", NEXT)
    as_evaluation(world, mode="From", uri=world.stores.objects.uri(durable.prefix))
    sampler = TestSampler(world.stores, NEXT)
    with sampling(sampler):
        assert world.attempt() == 0
    (evaluation,) = world.run.evaluations
    assert (evaluation.step, evaluation.version, evaluation.versions) == (
        0,
        1,
        {"1": evaluation.tokens},
    )
    assert evaluation.logprob_gap_mean < 1e-5
    served = sampler._model.state_dict()
    assert all(torch.equal(served[name], tensor) for name, tensor in trained.items())
    assert world.outcome.reason == "Evaluated"


def test_evaluating_an_adapter_checkpoint_is_refused_with_a_remedy(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(steps=1, lora={"rank": 2})
    with sampling(AdapterSampler(world.stores, RUN)):
        assert world.attempt() == 0
    durable, final = world.run.durable, world.outcome.final_model
    assert durable is not None
    uri = world.stores.objects.uri(durable.prefix)
    monkeypatch.setattr(worlds, "RUN", NEXT)
    as_evaluation(world, mode="From", uri=uri)
    assert world.attempt() == 2
    outcome = world.outcome
    assert (outcome.field, outcome.value) == ("spec.training.checkpoint.resume.uri", uri)
    assert outcome.reason == "CheckpointUnusable"
    assert "holds adapters" in outcome.message
    assert "spec.model.uri" in outcome.remedy
    monkeypatch.setattr(worlds, "RUN", "55555555-6666")
    world.spec = world.spec.model_copy(
        update={"model": world.spec.model.model_copy(update={"uri": final})}
    )
    as_evaluation(world, mode="Auto")
    with sampling(TestSampler(world.stores, "55555555-6666")):
        assert world.attempt() == 0
    assert world.outcome.reason == "Evaluated"


def sampling_run(make_world: MakeWorld) -> World:
    """Three windows of four prompts from ten records."""
    world = make_world()
    data = world.spec.data.model_dump(by_alias=True) | {"validation": []}
    spec = world.spec.model_dump(by_alias=True) | {
        "data": data,
        "algorithm": {"objective": "Sampling", "groupSize": SAMPLES},
        "training": {
            "precision": "FP32",
            "maxTokensPerMicrobatch": 64,
            "epochs": 1,
            "promptsPerStep": 4,
        },
    }
    world.spec = world.spec.model_validate(spec)
    world.write_mounts()
    return world


def windows(world: World) -> list[list[dict[str, Any]]]:
    """What is in the bucket, by window."""
    prefix = f"{world.stores.run_prefix(RUN)}samples/"
    keys = sorted(stored_object.key for stored_object in world.stores.objects.list(prefix))
    assert keys == [f"{prefix}{number:08d}.jsonl" for number in range(len(keys))]
    texts = [world.stores.objects.get(key).decode().splitlines() for key in keys]
    return [[json.loads(line) for line in text] for text in texts]


def check_windows(world: World) -> None:
    """Every rollout of the store is in the bucket once, and nothing was trained."""
    written = [line for window in windows(world) for line in window]
    tasks = world.stores.tasks.find(RUN, queue=Queue.CONSUMED, state=TaskState.DONE)
    stored = [rollout for task in tasks for rollout in world.stores.rollouts.of_task(task.id)]
    assert sorted(line["rollout"] for line in written) == sorted(rollout.id for rollout in stored)
    by_id = {rollout.id: rollout for rollout in stored}
    for line in written:
        rollout = by_id[line["rollout"]]
        assert (line["response"], line["reward"]) == (rollout.text, rollout.reward)
        assert (line["version"], line["answer"], line["dataset"]) == (1, "7", "train")
    sampled = world.run.sampled
    assert (sampled.windows, sampled.prompts, sampled.given_up, sampled.rollouts) == (
        3,
        12,
        0,
        12 * SAMPLES,
    )
    assert sampled.versions == {"1": sum(rollout.num_generated for rollout in stored)}
    assert sampled.reward_mean == pytest.approx(
        sum(rollout.reward for rollout in stored) / len(stored)
    )
    assert (world.run.step, world.run.steps, world.run.last_version) == (0, 3, 1)
    assert (world.outcome.kind, world.outcome.reason) == ("Succeeded", "Sampled")


def test_sampling_uses_a_single_policy(make_world: MakeWorld) -> None:
    world = sampling_run(make_world)
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    check_windows(world)
    assert {line["dataset"] for line in windows(world)[0]} == {"train"}
    assert world.report()["sampled"]["rollouts"] == 12 * SAMPLES
    assert world.stores.tasks.total(RUN, queue=Queue.TRAIN) == 0


@pytest.mark.soak
@pytest.mark.parametrize(("recorded", "windows_asked"), [(False, [1, 2, 2, 3]), (True, [1, 2, 3])])
def test_a_resumed_sampling_repeats_only_an_uncounted_window(
    make_world: MakeWorld,
    monkeypatch: pytest.MonkeyPatch,
    recorded: bool,
    windows_asked: list[int],
) -> None:
    """It died before the second window was recorded, or before that left the queue."""
    world = sampling_run(make_world)
    record, asked = RunStore.record_sampled, []

    def once(self: RunStore, run: str, *, epoch: int, sampled: Sampled) -> None:
        asked.append(sampled.windows)
        if len(asked) != 2 or recorded:
            record(self, run, epoch=epoch, sampled=sampled)
        if len(asked) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(RunStore, "record_sampled", once)
    with sampling(TestSampler(world.stores, RUN)):
        with pytest.raises(KeyboardInterrupt):
            world.attempt()
        assert world.run.sampled.windows == 1 + recorded
        assert world.attempt() == 0
    assert asked == windows_asked
    check_windows(world)


@pytest.mark.soak
@pytest.mark.parametrize("restored", ["the model", "another model"])
def test_answers_of_a_lost_policy_count_if_the_same_weights_are_published_again(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, restored: str
) -> None:
    world = sampling_run(make_world)
    with sampling(TestSampler(world.stores, RUN)), monkeypatch.context() as patched:
        patched.setattr(Windows, "_groups", interrupted)  # once the first window is answered
        with pytest.raises(KeyboardInterrupt):
            world.attempt()
    policy = world.run.policy
    assert policy is not None
    world.stores.objects.delete_prefix(policy.prefix)
    if restored == "another model":
        folder = save_tiny(world.folder / "other", seed=1)
        for path in folder.iterdir():
            world.stores.objects.put_file(f"{world.stores.objects.prefix}model/{path.name}", path)
    with sampling(TestSampler(world.stores, RUN)):
        code = world.attempt()
    run, outcome = world.run, world.outcome
    if restored == "another model":
        assert (code, outcome.reason, run.sampled.windows) == (2, "ModelChanged", 0)
        return
    assert (code, run.sampled.prompts, run.last_version) == (0, 12, 2)
    assert set(run.sampled.versions) == {"1", "2"}
    assert "were sampled by policy 1, 2;" in outcome.message


def test_unsampled_prompts_are_counted(make_world: MakeWorld) -> None:
    world = sampling_run(make_world)
    with sampling(TestSampler(world.stores, RUN, fail="too long")):
        assert world.attempt() == 0
    assert (world.run.sampled.given_up, world.run.sampled.prompts) == (12, 0)
    assert world.run.sampled.reward_mean is None
    assert windows(world) == [[], [], []]
