from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.documents.arrays import pack_float32, pack_int32
from rl_contracts.documents.rollout import VersionSpan
from rl_trainer.estimators import ESTIMATORS
from rl_trainer.groups import Group, Limits, assemble, empty_batch, form, select, staleness
from rl_trainer.samples import batch_samples, fault
from tests.documents import RUN, a_rollout, a_task

LIMITS = Limits(vocabulary=16, max_tokens=8)


def a_group(sequence: int, *, steps: tuple[int, int] = (0, 0), rewards: Any = (1.0, 0.0)) -> Group:
    task = a_task(sequence, attempt=1)
    rollouts = tuple(
        a_rollout(
            task,
            member,
            reward=rewards[member],
            spans=[VersionSpan(version=9, step=steps[member], start=2, end=4)],
        )
        for member in range(2)
    )
    return Group(
        task=task.model_copy(update={"rollouts": [one.id for one in rollouts]}), rollouts=rollouts
    )


def test_a_group_is_as_old_as_its_oldest_token() -> None:
    group = a_group(0, steps=(5, 3))
    assert group.oldest_step == 3
    assert staleness(group, step=4) == 0
    assert staleness(group, step=6) == 2


def test_those_that_expire_first_come_first_and_stale_ones_are_told_apart() -> None:
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
        ({"temperature": 0.7}, "temperature"),
    ],
)
def test_a_malformed_rollout_makes_its_group_unusable(changes: dict[str, Any], reason: str) -> None:
    group = a_group(0)
    first = group.rollouts[0].model_copy(update=changes)
    found = assemble(group.task, {first.id: first, group.rollouts[1].id: group.rollouts[1]}, LIMITS)
    assert isinstance(found, str)
    assert reason in found


def test_a_group_is_whole_or_unusable() -> None:
    group = a_group(0)
    rollouts = {one.id: one for one in group.rollouts}
    assert assemble(group.task, rollouts, LIMITS) == group
    one = group.rollouts[0].id
    missing = assemble(group.task, {one: rollouts[one]}, LIMITS)
    assert "is not in the store" in str(missing)
    twice = group.task.model_copy(update={"rollouts": [one, one]})
    assert "lists 1 rollouts, not 2" in str(assemble(twice, rollouts, LIMITS))
    assert "more than the 3 that fit" in fault(group.rollouts[0], vocabulary=16, max_tokens=3)


def test_a_batch_names_members_in_order_with_their_advantages() -> None:
    groups = [a_group(4, rewards=(1.0, 0.0)), a_group(2, rewards=(0.5, 0.5))]
    empty = empty_batch(run=RUN, step=3, epoch=2, parent="before", next_sequence=9, formed_at=1.5)
    batch = form(groups, batch=empty, estimator=ESTIMATORS["GRPO"])
    assert batch.id == "run1.batch.00000003.2"
    assert batch.tasks == [group.task.id for group in groups]
    assert [one.rollout for one in batch.members] == [
        one.id for group in groups for one in group.rollouts
    ]
    assert [one.advantage for one in batch.members] == pytest.approx(
        [0.7071, -0.7071, 0, 0], abs=1e-4
    )
    samples = batch_samples(batch, {one.id: one for group in groups for one in group.rollouts})
    assert samples[0].tokens.tolist() == [5, 6, 7, 2]
    assert samples[0].mask.tolist() == [False, False, True, True]
    assert samples[0].logprobs.tolist() == [0.0, 0.0, -0.5, -0.25]
    assert samples[1].advantage == batch.members[1].advantage
