"""Training from the stored rollouts of an earlier run, against a plain loop over transformers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from rl_contracts.audit import run as run_audit
from rl_contracts.documents.arrays import unpack_float32, unpack_int32
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.run import Holder
from rl_contracts.documents.step_metrics import StepMetrics
from rl_contracts.documents.task import Queue, Task, TaskState
from rl_contracts.ids import RunId, task_id
from rl_contracts.queries import rollouts as rollout_queries
from rl_contracts.queries.answers import RolloutAnswer
from rl_contracts.queries.kinds import RolloutQuery
from rl_contracts.queries.tokenizer import Vocabularies
from rl_trainer.algorithm.groups import Group
from rl_trainer.checkpoint import base_model
from rl_trainer.rollouts import stored as stored_groups
from rl_trainer.rollouts.demonstrations import NO_SAMPLER
from rl_trainer.rollouts.stored import StoredGroups
from tests.contract.rl_trainer import world as worlds
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.durability.crash import train_over_crashes
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World
from tests.samples.documents import a_rollout, a_run, a_task

EARLIER, NEXT = "earlier-run", "33333333-4444"
RATE, EPSILON, CLIP = 3e-3, 1e-3, 0.2
STEPS, PER_STEP, MEMBERS = 4, 4, 4


def offline(world: World, run: str, **training: Any) -> None:
    """Change the manifest to train what ``run`` has stored."""
    given = world.spec.model_dump(by_alias=True)
    for section in ("samplers", "reward", "weightSync", "agent", "rollouts"):
        del given[section]
    given["data"] = {"rollouts": {"runId": run}}
    given["algorithm"] = {
        "objective": "Offline",
        "groupSize": MEMBERS,
        "estimator": {"kind": "DrGRPO"},
    }
    given["training"] = worlds.training_section(
        steps=STEPS,
        promptsPerStep=PER_STEP,
        optimizer={"learningRate": RATE, "epsilon": EPSILON},
        checkpoint={"everySteps": 2},
        evaluation={},
        **training,
    )
    given["agent"] = {"sampling": {"maxContextTokens": 48, "maxTokensPerTurn": 24}}
    world.spec = world.spec.model_validate(given)
    world.write_mounts()


def surrogate(model: Any, rollout: Rollout, advantage: float) -> Tensor:
    """PPO's clipped loss of each generated token, against the stored log-probabilities."""
    tokens = torch.tensor([unpack_int32(rollout.tokens)])
    generated = torch.tensor(list(rollout.mask), dtype=torch.bool)[1:]
    logits = model(input_ids=tokens, use_cache=False).logits[0, :-1]
    logprobs = logits.log_softmax(-1).gather(-1, tokens[0, 1:, None])[:, 0][generated]
    stored = torch.tensor(unpack_float32(rollout.logprobs))[1:][generated]
    ratio = (logprobs - stored).exp()
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)


def reference(world: World) -> dict[str, Tensor]:
    """Weights by a plain loop over the batches of the run."""
    model = AutoModelForCausalLM.from_pretrained(world.folder / "model").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, eps=EPSILON, weight_decay=0.0)
    for rollouts in world.trained():
        losses = []
        for _, members in itertools.groupby(rollouts, key=lambda rollout: rollout.task):
            group = list(members)
            mean = sum(rollout.reward for rollout in group) / len(group)
            losses += [surrogate(model, rollout, rollout.reward - mean) for rollout in group]
        loss = torch.cat(losses).mean()
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def test_stored_groups_train_as_a_plain_loop_does_over_crashes(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(steps=2)
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    stored = {rollout.id: rollout for step in world.trained() for rollout in step}
    began = world.stores.mongo.now()
    monkeypatch.setattr(worlds, "RUN", NEXT)
    offline(world, RUN)
    train_over_crashes(world, monkeypatch, first=40, later=25)

    final = world.final_weights()
    weights = reference(world)
    assert max(float((final[name] - weight).abs().max()) for name, weight in weights.items()) < 1e-5
    bitwise = world.uninterrupted()
    assert all(torch.equal(tensor, final[name]) for name, tensor in bitwise.items())

    # Each stored group once in each of two passes, with what its policy said of its tokens.
    trained = [rollout for step in world.trained() for rollout in step]
    for half in (trained[: len(stored)], trained[len(stored) :]):
        assert {rollout.origin for rollout in half} == set(stored)
    for rollout in trained:
        origin = stored[rollout.origin]
        for name in ("tokens", "mask", "logprobs", "reward", "text", "sampler"):
            assert getattr(rollout, name) == getattr(origin, name)
        assert [span.version for span in rollout.spans] == [span.version for span in origin.spans]
        assert {span.step for span in rollout.spans} == {0}
        assert rollout.timings.claimed_at >= began, "retention counts its age from its copy"
        assert rollout.timings.generate_seconds == origin.timings.generate_seconds
    tasks = [
        task for batch in world.stores.batches.lineage(world.run.head_batch) for task in batch.tasks
    ]
    assert len(set(tasks)) == len(tasks) == STEPS * PER_STEP

    lines = world.newest("metrics.jsonl").decode().splitlines()
    metrics = [StepMetrics.model_validate_json(line) for line in lines]
    assert metrics[0].logprob_gap_mean < 1.0  # of other weights than those that sampled
    assert [metric.staleness_max for metric in metrics] == [0, 1, 2, 3]
    run = world.run
    monkeypatch.setattr(rollout_queries, "STEPS_AFTER", STEPS // 2)  # not from step 0 on
    query = RolloutQuery(rollout=trained[-1].id)
    answer = rollout_queries.answer(
        world.stores, run, query, vocabularies=Vocabularies(), tokenizer=""
    )
    assert isinstance(answer, RolloutAnswer)
    assert answer.fate == f"It was trained in step {STEPS}."
    assert (run.policy, run.last_version, run.evaluations) == (None, 0, [])
    (summary,) = run.datasets
    assert (summary.name, summary.uri, summary.records) == ("rollouts", f"run {RUN}", 8)
    assert run_audit.audit(world.stores, NEXT).good
    assert all(world.stores.tasks.total(NEXT, queue=queue) == 0 for queue in list(Queue)[:2])


@pytest.fixture
def earlier(make_world: MakeWorld) -> World:
    """A world whose job trains the eight groups of a run that has ended."""
    world = make_world()
    offline(world, EARLIER)
    tokens = base_model.vocabulary(world.folder / "model")
    outcome = {"kind": "Succeeded", "reason": "Trained", "message": "."}
    world.stores.runs.create(a_run(id=EARLIER, outcome=outcome, vocabulary=tokens))
    for sequence in range(8):
        put_group(world, sequence)
    return world


def put_group(
    world: World,
    sequence: int,
    *,
    members: int = MEMBERS,
    stored: int | None = None,
    **rollout: Any,
) -> None:
    """A trained group of the earlier run, which may have gone on without some members."""
    name = task_id(RunId(EARLIER), "train", sequence)
    task = a_task(sequence, id=name, run=EARLIER, group_size=members, attempt=1)
    group = [
        a_rollout(task, member, **{"reward": float(member % 2), **rollout})
        for member in range(members if stored is None else stored)
    ]
    done = {
        "queue": Queue.CONSUMED,
        "state": TaskState.DONE,
        "rollouts": [member.id for member in group],
    }
    world.stores.rollouts.put(group)
    world.stores.tasks.insert([task.model_copy(update=done)])


def purge(world: World) -> None:
    stored = world.stores.tasks.find(EARLIER, queue=Queue.CONSUMED, state=TaskState.DONE)
    world.stores.rollouts.delete(stored[3].rollouts[1])


def empty(world: World) -> None:
    world.stores.tasks.delete(
        list(world.stores.tasks.ids(EARLIER, queue=Queue.CONSUMED, state=TaskState.DONE))
    )


def revive(world: World) -> None:
    runs = world.stores.runs
    epoch = runs.take_epoch(EARLIER, holder=Holder(job="j", attempt=1)).epoch
    runs.clear_outcome(EARLIER, epoch=epoch)
    runs.heartbeat(EARLIER, epoch=epoch, phase="training: step 3 of 9")


def other_tokens(world: World, sha256: str) -> None:
    epoch = world.stores.runs.take_epoch(EARLIER, holder=Holder(job="j", attempt=1)).epoch
    world.stores.runs.record_vocabulary(EARLIER, epoch=epoch, sha256=sha256)


def change(world: World, **sections: Any) -> None:
    given = world.spec.model_dump(by_alias=True)
    for section, values in sections.items():
        given[section] = {**given[section], **values}
    world.spec = world.spec.model_validate(given)
    world.write_mounts()


@pytest.mark.parametrize(
    ("spoil", "reason", "message", "remedy"),
    [
        (
            lambda world: change(world, data={"rollouts": {"runId": "nobody"}}),
            "RunNotFound",
            "no such run",
            "status.runId",
        ),
        (revive, "RunAtWork", "has not ended: training: step 3 of 9", "Wait"),
        (empty, "RolloutsPurged", "no group of rollouts", "another run|still has some"),
        (purge, "RolloutsPurged", "00000003: its rollouts were deleted", "onBadRecord to Skip"),
        (
            lambda world: change(world, algorithm={"groupSize": 8}),
            "RolloutsDiffer",
            "groups of 4 rollouts",
            "groupSize to 4; it is 8",
        ),
        (
            lambda world: change(
                world,
                agent={
                    "sampling": {"temperature": 0.5, "maxContextTokens": 48, "maxTokensPerTurn": 24}
                },
            ),
            "RolloutsDiffer",
            "at temperature 1",
            "temperature to 1; it is 0.5",
        ),
        (
            lambda world: other_tokens(world, "0" * 64),
            "VocabularyDiffers",
            "another tokenizer",
            "spec.model.uri",
        ),
        (
            lambda world: other_tokens(world, ""),
            "VocabularyDiffers",
            "does not say",
            "another run",
        ),
        (
            lambda world: put_group(world, 8, sampler=NO_SAMPLER),
            "RolloutsUnusable",
            "no policy sampled it",
            "onBadRecord",
        ),
        (
            lambda world: put_group(
                world,
                8,
                text="x",
                tokens=a_rollout(a_task()).tokens[:-4] + (10**6).to_bytes(4, "little"),
            ),
            "RolloutsUnusable",
            "outside the vocabulary",
            "onBadRecord",
        ),
        (
            lambda world: put_group(world, 8, stored=1),
            "RolloutsUnusable",
            "1 sampled rollouts, and algorithm.estimator DrGRPO compares at least 2",
            "onBadRecord",
        ),
    ],
    ids=[
        "no run",
        "at work",
        "no groups",
        "a rollout purged",
        "group size",
        "temperature",
        "tokens",
        "tokens unknown",
        "demonstrations",
        "a foreign token",
        "one member for an estimator that compares",
    ],
)
def test_what_cannot_be_trained_is_refused(
    earlier: World, spoil: Callable[[World], None], reason: str, message: str, remedy: str
) -> None:
    change(earlier, data={"shuffle": False}, training={"steps": 3})
    spoil(earlier)
    assert earlier.attempt() == 2
    outcome = earlier.outcome
    assert (outcome.reason, outcome.field) == (reason, "spec.data.rollouts.runId")
    assert message in outcome.message
    assert any(part in outcome.remedy for part in remedy.split("|"))
    assert earlier.run.step <= 2


def test_purged_groups_are_left_out_where_the_manifest_says_so(earlier: World) -> None:
    purge(earlier)
    change(earlier, data={"onBadRecord": "Skip"}, training={"steps": None, "epochs": 1})
    assert earlier.attempt() == 0
    (summary,) = earlier.run.datasets
    assert (summary.records, summary.skipped) == (7, 1)
    assert summary.first_skipped == [f"{EARLIER}.train.00000003: its rollouts were deleted"]
    assert (earlier.run.step, earlier.run.steps) == (2, 2)


def test_a_step_that_sigterm_interrupts_collects_the_same_groups_again(
    earlier: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of step 2 the first half is copied when SIGTERM comes, and step 1 becomes durable."""
    change(earlier, training={"steps": None, "epochs": 1})
    terminated, asked = threading.Event(), []
    copied = StoredGroups._copied

    def interrupted(self: StoredGroups, tasks: Sequence[Task]) -> list[Group]:
        asked.append(tasks)
        if len(asked) == 3:
            terminated.set()
        return copied(self, tasks)

    monkeypatch.setattr(stored_groups, "GROUPS_AT_ONCE", PER_STEP // 2)
    monkeypatch.setattr(StoredGroups, "_copied", interrupted)
    assert earlier.attempt(terminated) == 143
    assert earlier.run.durable is not None
    assert (earlier.run.step, earlier.run.durable.step) == (1, 1)
    assert earlier.attempt() == 0
    origins = [rollout.origin for step in earlier.trained() for rollout in step]
    assert len(set(origins)) == len(origins) == 8 * MEMBERS


def test_a_pass_without_signal_ends_the_attempt(earlier: World) -> None:
    empty(earlier)
    for sequence in range(8, 12):
        put_group(earlier, sequence, reward=1.0)
    change(earlier, algorithm={"shaping": {"dynamicSampling": True}})
    assert earlier.attempt() == 1
    assert earlier.outcome.reason == "NoSignal"
    assert "its rewards do not differ" in earlier.outcome.message
