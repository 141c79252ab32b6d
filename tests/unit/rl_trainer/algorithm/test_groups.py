from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rl_contracts.documents.arrays import pack_float32, pack_int32
from rl_contracts.documents.batch import BatchMember
from rl_contracts.documents.rollout import Rollout, RolloutError, VersionSpan
from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_contracts.spec.algorithm.estimator import Estimator
from rl_trainer.algorithm import credit
from rl_trainer.algorithm.assessment import Context
from rl_trainer.algorithm.groups import (
    Group,
    Limits,
    assemble,
    empty_batch,
    form,
    select,
)
from rl_trainer.algorithm.packing import collate
from rl_trainer.algorithm.rollout_faults import fault, head_fault
from rl_trainer.algorithm.samples import batch_samples, sequences
from tests.samples.documents import RUN, a_head, a_rollout, a_task

LIMITS = Limits(vocabulary=16, max_tokens=8)


def a_group(sequence: int, *, steps: tuple[int, int] = (0, 0), rewards: Any = (1.0, 0.0)) -> Group:
    task = a_task(sequence, attempt=1)
    rollouts = tuple(
        a_head(
            task,
            member,
            reward=rewards[member],
            spans=[VersionSpan(version=9, step=steps[member], start=2, end=4)],
        )
        for member in range(2)
    )
    return Group(
        task=task.model_copy(update={"rollouts": [rollout.id for rollout in rollouts]}),
        rollouts=rollouts,
    )


def test_a_group_is_as_old_as_its_oldest_token() -> None:
    group = a_group(0, steps=(5, 3))
    assert group.oldest_step == 3
    assert group.is_trainable(step=4, max_staleness=0)
    assert group.is_trainable(step=6, max_staleness=2)
    assert not group.is_trainable(step=6, max_staleness=1)


def test_selection_takes_soon_stale_groups_first_and_returns_stale_ones() -> None:
    groups = [
        a_group(0, steps=(4, 4)),
        a_group(1, steps=(3, 3)),
        a_group(2, steps=(1, 4)),
        a_group(3, steps=(3, 4)),
    ]
    chosen, stale = select(groups, step=5, max_staleness=1, wanted=2)
    assert [group.task.sequence for group in chosen] == [1, 3]
    assert [group.task.sequence for group in stale] == [2]
    assert select(groups, step=5, max_staleness=3, wanted=9)[1] == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tokens": pack_int32([5, 6, 7])}, "differ in length"),
        ({"mask": b"\0\0\0\0"}, "no generated token"),
        ({"mask": b"\1\1\1\1"}, "no prompt"),
        ({"mask": b"\1\0\1\1"}, "starts with a generated token"),
        ({"mask": b"\0\2\1\1"}, "other than 0 and 1"),
        ({"tokens": pack_int32([5, 6, 7, 16])}, "outside the vocabulary"),
        ({"tokens": pack_int32([5, 6, 7, -1])}, "outside the vocabulary"),
        ({"logprobs": pack_float32([0, 0, float("nan"), -1])}, "not finite"),
        ({"logprobs": pack_float32([0, 0, 0.5, -1])}, "positive"),
        ({"reward": float("nan")}, "reward is nan"),
        ({"spans": []}, "spans"),
        ({"spans": [VersionSpan(version=1, step=0, start=2, end=3)]}, "spans"),
        ({"spans": [VersionSpan(version=1, step=0, start=1, end=4)]}, "spans"),
        ({"spans": [VersionSpan(version=1, step=0, start=2, end=5)]}, "spans"),
        ({"error": RolloutError(kind="infrastructure", message="no tool")}, "error: no tool"),
        ({"sequence_starts": [2]}, "starts with a generated token"),
        ({"sequence_starts": [1, 1]}, "start at [1, 1]"),
        ({"sequence_starts": [4]}, "start at [4]"),
        ({"sequence_starts": [-1]}, "start at [-1]"),
    ],
)
def test_a_malformed_rollout_is_found_when_it_is_read(changes: dict[str, Any], reason: str) -> None:
    rollout = a_rollout(a_task(attempt=1))
    assert fault(rollout, vocabulary=16, max_tokens=8) == ""
    assert reason in fault(rollout.model_copy(update=changes), vocabulary=16, max_tokens=8)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"mask": b"\0\0\0\0"}, "no generated token"),
        ({"mask": b"\1\1\1\1"}, "no prompt"),
        ({"reward": float("nan")}, "reward is nan"),
        ({"temperature": 0.7}, "temperature"),
        ({"error": RolloutError(kind="infrastructure", message="no tool")}, "error: no tool"),
    ],
)
def test_what_a_head_shows_makes_its_group_unusable(changes: dict[str, Any], reason: str) -> None:
    group = a_group(0)
    first = a_head(a_task(0, attempt=1), 0, **changes)
    assert first.id == group.rollouts[0].id
    problem = assemble(
        group.task, {first.id: first, group.rollouts[1].id: group.rollouts[1]}, LIMITS
    )
    assert isinstance(problem, str)
    assert reason in problem


def test_an_incomplete_group_is_unusable() -> None:
    group = a_group(0)
    rollouts = {rollout.id: rollout for rollout in group.rollouts}
    assert assemble(group.task, rollouts, LIMITS) == group
    name = group.rollouts[0].id
    missing = assemble(group.task, {name: rollouts[name]}, LIMITS)
    assert "is not in the store" in str(missing)
    twice = group.task.model_copy(update={"rollouts": [name, name]})
    assert "lists 1 rollouts, not 2" in str(assemble(twice, rollouts, LIMITS))
    assert "more than the 3 that fit" in head_fault(group.rollouts[0], max_tokens=3)


def test_a_group_of_another_temperature_than_the_manifests_is_unusable() -> None:
    group = a_group(0)
    rollouts = {rollout.id: rollout for rollout in group.rollouts}
    limits = Limits(vocabulary=16, max_tokens=8, temperature=group.task.temperature)
    assert assemble(group.task, rollouts, limits) == group
    other = dataclasses.replace(limits, temperature=0.3)
    problem = assemble(group.task, rollouts, other)
    assert problem == "sampled at temperature 1, and agent.sampling.temperature is 0.3"
    assert assemble(group.task, rollouts, other.for_evaluation()) == group


@pytest.mark.parametrize(
    ("estimator", "members", "reason"),
    [
        ({"kind": "GRPO"}, 2, ""),
        ({"kind": "GRPO"}, 1, "has 1 sampled rollouts, and algorithm.estimator GRPO compares at "),
        ({"kind": "PassAtK", "k": 3}, 2, "compares at least 3"),
        ({"kind": "RAE"}, 1, ""),
        ({"kind": "ReMax"}, 2, "no greedy rollout"),
    ],
)
def test_a_group_that_the_estimator_cannot_take_is_unusable(
    estimator: dict[str, Any], members: int, reason: str
) -> None:
    group = a_group(0)
    rollouts = {rollout.id: rollout for rollout in group.rollouts[:members]}
    task = group.task.model_copy(update={"rollouts": list(rollouts), "minimum": 1})
    limits = dataclasses.replace(LIMITS, estimator=Estimator.model_validate(estimator))
    assembled = assemble(task, rollouts, limits)
    if reason:
        assert reason in str(assembled)
        assert isinstance(assemble(task, rollouts, limits.for_evaluation()), Group)
    else:
        assert isinstance(assembled, Group)
        credit.members([assembled.rollouts], Algorithm(estimator=limits.estimator), Context())


TWO_TURNS: dict[str, Any] = {
    "tokens": pack_int32([5, 6, 7, 2, 8, 9, 2, 5, 3]),
    "mask": bytes([0, 0, 1, 1, 0, 1, 1, 0, 1]),
    "logprobs": pack_float32([0, 0, -1, -2, 0, -3, -4, 0, -5]),
    "spans": [VersionSpan(version=9, step=0, start=a, end=b) for a, b in ((2, 4), (5, 7), (8, 9))],
    "sequence_starts": [7],
}


def test_turns_train_in_one_sequence_until_their_context_was_discarded() -> None:
    rollout = a_rollout(a_task(attempt=1), **TWO_TURNS)
    assert fault(rollout, vocabulary=16, max_tokens=7) == ""
    assert "sequence of 7 tokens" in fault(rollout, vocabulary=16, max_tokens=6)
    first, second = sequences(rollout)
    assert first.tokens.tolist() == [5, 6, 7, 2, 8, 9, 2]
    assert first.mask.tolist() == [False, False, True, True, False, True, True]
    assert first.logprobs.tolist() == [0, 0, -1, -2, 0, -3, -4]
    assert (second.tokens.tolist(), second.mask.tolist()) == ([5, 3], [False, True])
    assert first.num_generated + second.num_generated == rollout.num_generated
    packed = collate([first, second], (0, 1))
    assert packed.positions.tolist() == [[0, 1, 2, 3, 4, 5, 6, 0, 1]]
    assert packed.sources.tolist() == [1, 2, 4, 5, 7]
    assert packed.targets.tolist() == [7, 2, 9, 2, 3]
    assert packed.logprobs.tolist() == [-1, -2, -3, -4, -5]


def test_a_sequence_without_a_generated_token_trains_nothing() -> None:
    rollout = a_rollout(a_task(attempt=1), sequence_starts=[1])
    assert [sequence.tokens.tolist() for sequence in sequences(rollout)] == [[6, 7, 2]]


def test_documents_of_one_turn_are_read_as_they_were() -> None:
    stored = a_rollout(a_task(attempt=1)).to_mongo()
    for later in ("sequence_starts", "turns", "error"):
        del stored[later]
    rollout = Rollout.from_mongo(stored)
    assert (rollout.turns, rollout.error) == ([], None)
    assert [sequence.tokens.tolist() for sequence in sequences(rollout)] == [[5, 6, 7, 2]]


def test_a_batch_names_members_in_order_with_their_advantages() -> None:
    groups = [a_group(4, rewards=(1.0, 0.0)), a_group(2, rewards=(0.5, 0.5))]
    empty = empty_batch(run=RUN, step=3, epoch=2, parent="before", next_sequence=9, formed_at=1.5)
    batch = form(groups, batch=empty, algorithm=Algorithm(), context=Context())
    assert batch.id == "run1.batch.00000003.2"
    assert batch.tasks == [group.task.id for group in groups]
    assert [member.rollout for member in batch.members] == [
        rollout.id for group in groups for rollout in group.rollouts
    ]
    assert [member.advantage for member in batch.members] == pytest.approx(
        [0.7071, -0.7071, 0, 0], abs=1e-4
    )
    samples = batch_samples(
        batch, {rollout.id: rollout for group in groups for rollout in group.rollouts}
    )
    assert [len(sample) for sample in samples] == [4] * 4
    assert [sample.num_generated for sample in samples] == [2] * 4
    assert samples[1].advantage == batch.members[1].advantage


def test_advantages_of_tokens_go_to_the_tokens_that_were_generated() -> None:
    group = a_group(0)
    empty = empty_batch(run=RUN, step=1, epoch=1, parent=None, next_sequence=1, formed_at=1.5)
    member = BatchMember(
        rollout=group.rollouts[0].id, advantage=0.75, token_advantages=pack_float32([0.5, 1.0])
    )
    batch = empty.model_copy(update={"members": [member]})
    (sample,) = batch_samples(batch, {rollout.id: rollout for rollout in group.rollouts})
    assert sample.token_advantages is not None
    assert sample.token_advantages.tolist() == [0.5, 1.0]
    assert collate([sample], (0,)).advantages.tolist() == [0.5, 1.0]
