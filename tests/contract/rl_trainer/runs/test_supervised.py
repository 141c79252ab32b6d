"""Supervised fine-tuning without a sampler, against transformers' own loss."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from rl_contracts.audit import batch as batch_audit
from rl_contracts.audit import run as run_audit
from rl_contracts.documents.arrays import unpack_int32
from rl_contracts.documents.datasets.reading import SourceReader
from rl_contracts.documents.step_metrics import StepMetrics
from rl_contracts.documents.task import Queue, Task, TaskState
from rl_contracts.retention.sweep import Sweeper
from rl_contracts.stores.objects import split_uri
from rl_contracts.stores.tasks import TaskStore
from rl_trainer.errors import TrainingFailedError
from rl_trainer.rollouts import signals
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.durability.crash import reaching, train_over_crashes
from tests.contract.rl_trainer.world import RUN, World
from tests.models.tiny_model import ASSISTANT, END, TEMPLATE

STEPS, PER_STEP, RATE = 5, 4, 3e-3
EPSILON = 1e-3
"""Of Adam: with a smaller one a gradient of rounding errors alone would make a whole step."""


def conversation(number: int) -> list[dict[str, str]]:
    """One or two turns of the assistant, of different lengths."""
    first = [
        {"role": "user", "content": str(number)},
        {"role": "assistant", "content": str(7 + number)},
    ]
    again = [{"role": "user", "content": "12"}, {"role": "assistant", "content": "3"}]
    return first + again if number % 3 == 0 else first


def supervised(make_world: MakeWorld, **algorithm: Any) -> World:
    world = make_world(
        steps=STEPS,
        optimizer={"learningRate": RATE, "epsilon": EPSILON},
        checkpoint={"everySteps": 2},
        evaluation={"everySteps": 2, "beforeTraining": True},
        maxTokensPerMicrobatch=48,
        promptsPerUpdate=PER_STEP,
    )
    objects = world.stores.objects
    lines = [json.dumps({"id": f"c{n}", "chat": conversation(n)}) + "\n" for n in range(10)]
    objects.put(f"{objects.prefix}train.jsonl", "".join(lines).encode())
    given = world.spec.model_dump(by_alias=True)
    del given["samplers"], given["reward"], given["weightSync"]
    given["data"]["train"][0]["columns"] = {"messages": "chat"}
    given["agent"] = {"sampling": {"maxContextTokens": 48, "maxTokensPerTurn": 24}}
    given["algorithm"] = {"objective": "SFT", **algorithm}
    world.spec = world.spec.model_validate(given)
    world.write_mounts()
    return world


def labels_of(tokens: list[int]) -> list[int]:
    """What follows each generation prompt up to the end of the turn; -100 elsewhere."""
    labels, speaks = [], False
    for token in tokens:
        labels.append(token if speaks else -100)
        speaks = token == ASSISTANT or (speaks and token != END)
    return labels


def nll(model: Any, tokens: list[int]) -> tuple[Tensor, int]:
    """Transformers' loss of a conversation, summed, and its number of trained tokens."""
    labels = labels_of(tokens)
    count = sum(label != -100 for label in labels)
    return model(
        input_ids=torch.tensor([tokens]), labels=torch.tensor([labels])
    ).loss * count, count


def mean_loss(model: Any, sequences: list[list[int]]) -> Tensor:
    """Over all tokens."""
    parts = [nll(model, sequence) for sequence in sequences]
    total: Tensor = torch.stack([loss for loss, _ in parts]).sum()
    return total / sum(count for _, count in parts)


def reference(world: World) -> tuple[dict[str, Tensor], list[float], list[float]]:
    """Weights, loss of each step and validation losses by a plain loop over transformers."""
    model = AutoModelForCausalLM.from_pretrained(world.folder / "model").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, eps=EPSILON, weight_decay=0.0)
    held_out = [[13, digit, 11, 14, 7, 11] for digit in range(10)]
    losses, validation = [], []
    for step, rollouts in enumerate(world.trained()):
        if step % 2 == 0:
            validation.append(float(mean_loss(model, held_out).detach()))
        loss = mean_loss(model, [unpack_int32(rollout.tokens) for rollout in rollouts])
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    validation.append(float(mean_loss(model, held_out).detach()))
    return (
        {name: parameter.detach() for name, parameter in model.named_parameters()},
        losses,
        validation,
    )


def test_sigterm_ends_a_validation_between_two_records(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, terminated = supervised(make_world), threading.Event()
    with reaching("evaluating step 0", terminated.set, monkeypatch):
        assert world.attempt(terminated) == 143
    assert (world.run.step, world.evaluations, world.run.outcome) == (0, [], None)


def test_supervised_training_equals_transformers_over_crashes(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = supervised(make_world)
    began = world.stores.mongo.now()
    train_over_crashes(world, monkeypatch, first=40, later=25)
    world.check_lineage()  # the weights are bit for bit those without a crash
    weights, losses, validation = reference(world)
    final = world.final_weights()
    assert max(float((final[name] - weight).abs().max()) for name, weight in weights.items()) < 1e-5

    lines = world.newest("metrics.jsonl").decode().splitlines()
    metrics = [StepMetrics.model_validate_json(line) for line in lines]
    assert [metric.loss for metric in metrics] == pytest.approx(losses, abs=1e-5)
    run = world.run
    assert [
        (evaluation.step, evaluation.accuracy, evaluation.version)
        for evaluation in world.evaluations
    ] == [(step, None, 0) for step in (0, 2, 4, 5)]
    assert [evaluation.loss for evaluation in world.evaluations] == pytest.approx(
        validation, abs=1e-5
    )
    assert validation[-1] < validation[0]

    # Every record once in a pass, nothing published, nothing left in a queue.
    trained = world.stores.tasks.find(RUN, queue=Queue.CONSUMED, state=TaskState.DONE)
    assert [task.sequence for task in trained] == list(range(STEPS * PER_STEP))
    assert len({task.example for task in trained[:10]}) == 10
    assert (run.policy, run.last_version) == (None, 0)
    assert run_audit.audit(world.stores, RUN).good
    shown = batch_audit.audit(world.stores, RUN, step=2)
    assert shown.good
    assert {sequence.rollout for sequence in shown.sequences} == {
        rollout.id for rollout in world.trained()[1]
    }
    assert all(world.stores.tasks.total(RUN, queue=queue) == 0 for queue in list(Queue)[:2])

    # Retention counts a rollout's age from when it was written.
    for rollout in itertools.chain.from_iterable(world.trained()):
        assert began <= rollout.timings.claimed_at <= world.stores.mongo.now()


def test_records_that_cannot_be_trained_are_refused_or_left_out(make_world: MakeWorld) -> None:
    world = supervised(make_world)
    objects = world.stores.objects
    long = {
        "id": "long",
        "chat": [*conversation(1)[:1], {"role": "assistant", "content": "1" * 60}],
    }
    lines = [json.dumps(record) + "\n" for record in (long, {"id": "c1", "chat": conversation(1)})]
    objects.put(f"{objects.prefix}train.jsonl", "".join(lines).encode())
    assert world.attempt() == 2
    assert world.outcome.reason == "RecordUntrainable"
    assert "a sequence of 65 tokens, more than the 48 that fit" in world.outcome.message
    assert "spec.agent.sampling.maxContextTokens" in world.outcome.remedy
    given = world.spec.model_dump(by_alias=True)
    given["data"] |= {"onBadRecord": "Skip", "shuffle": False}
    given["data"]["validation"][0] |= {
        name: given["data"]["train"][0][name] for name in ("uri", "columns")
    }
    given["training"] |= {"steps": None, "epochs": 2, "promptsPerStep": 2, "promptsPerUpdate": 2}
    world.spec = world.spec.model_validate(given)
    world.write_mounts()
    assert world.attempt() == 0
    trained = world.stores.tasks.find(RUN, queue=Queue.CONSUMED, state=TaskState.DONE)
    assert [task.example for task in trained] == ["c1"] * 4
    # Two passes over two records are two steps, which the second record fills in four passes.
    run = world.run
    assert (run.step, run.totals.drops.by_cause["unusable"]) == (2, 4)
    assert (run.latest.dropped_share if run.latest else None) == 0.0
    assert (world.evaluations[-1].prompts, world.evaluations[-1].skipped) == (1, 1)


def test_a_run_goes_on_whose_manifest_names_a_column_that_no_record_has(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier releases began such runs."""
    world = supervised(make_world)
    given = world.spec.model_dump(by_alias=True)
    given["data"]["train"][0]["columns"]["fields"] = ["level"]
    world.spec = world.spec.model_validate(given)
    world.write_mounts()
    check = signals.check

    def fail(job: Any, progress: Any) -> None:
        if progress.step == 1:
            raise TrainingFailedError(reason="Lost", message="the node is lost")
        check(job, progress)

    with monkeypatch.context() as earlier:
        earlier.setattr(SourceReader, "_check_columns", lambda self: None)
        earlier.setattr(signals, "check", fail)
        assert world.attempt() == 1
    assert world.run.step == 1
    assert world.attempt() == 0, world.outcome


def test_retention_keeps_the_rollouts_of_the_step_that_is_being_formed(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = supervised(make_world)
    kept = {"lifecycle": {"retention": {"rollouts": {"maxCount": 1}}}}
    world.spec = world.spec.model_validate(world.spec.model_dump(by_alias=True) | kept)
    world.write_mounts()
    sweeper = Sweeper(world.stores, run=RUN, bounds=world.spec.lifecycle.retention)
    insert = TaskStore.insert

    def after_a_sweep(self: TaskStore, tasks: Sequence[Task]) -> int:
        sweeper.sweep(epoch=world.run.epoch)  # as beside a checkpoint, while rollouts have no task
        return insert(self, tasks)

    monkeypatch.setattr(TaskStore, "insert", after_a_sweep)
    assert world.attempt() == 0
    assert [len(rollouts) for rollouts in world.trained()] == [PER_STEP] * STEPS
    assert run_audit.audit(world.stores, RUN).good


def test_a_template_of_the_manifest_is_trained_and_exported(make_world: MakeWorld) -> None:
    world = supervised(make_world)
    template = "{# ours #}" + TEMPLATE
    agent = world.spec.agent.model_copy(update={"chat_template": template})
    world.spec = world.spec.model_copy(update={"agent": agent})
    world.write_mounts()
    assert world.attempt() == 0
    _, prefix = split_uri(world.outcome.final_model)
    assert world.stores.objects.get(f"{prefix}chat_template.jinja").decode() == template
