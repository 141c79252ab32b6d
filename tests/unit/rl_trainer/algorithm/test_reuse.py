from __future__ import annotations

import itertools
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from rl_contracts.documents.batch import Batch, BatchMember
from rl_contracts.documents.rollout import VersionSpan
from rl_trainer.algorithm.groups import Group
from rl_trainer.algorithm.reuse import Trainings, trainable_again, trainings
from tests.samples.documents import a_batch, a_head, a_task


def a_group(sequence: int, *, step: int, other: int | None = None) -> Group:
    """Of two members; ``other`` is the second one's step where it differs."""
    task = a_task(sequence, attempt=1)
    rollouts = tuple(
        a_head(
            task,
            member,
            spans=[VersionSpan(version=of_member + 1, step=of_member, start=2, end=4)],
        )
        for member, of_member in enumerate((step, step if other is None else other))
    )
    return Group(task=task, rollouts=rollouts)


def a_batch_of(step: int, *groups: Group) -> Batch:
    members = [
        BatchMember(rollout=rollout.id, advantage=0)
        for group in groups
        for rollout in group.rollouts
    ]
    return a_batch(step, None, members=members)


def test_trainings_are_counted_from_batches_alone() -> None:
    first, second = a_group(0, step=0), a_group(1, step=0)
    by_rollout = trainings([a_batch_of(1, first, second), a_batch_of(3, first)])
    assert by_rollout[first.rollouts[0].id] == Trainings(times=2, last_step=3)
    assert by_rollout[second.rollouts[1].id] == Trainings(times=1, last_step=1)


@given(
    staleness=st.integers(1, 5),
    times=st.integers(1, 4),
    interval=st.integers(1, 3),
    arrivals=st.lists(st.integers(0, 3), min_size=8, max_size=20),
)
def test_no_rollout_is_trained_too_often_too_soon_or_too_old(
    staleness: int, times: int, interval: int, arrivals: list[int]
) -> None:
    """Play a run whose counts come from the last ``staleness`` batches alone."""
    pool: list[Group] = []
    batches: list[Batch] = []
    trained: dict[int, list[int]] = {}
    made = 0
    born: dict[int, int] = {}
    for step, arrived in enumerate(arrivals, start=1):
        fresh = [a_group(made + index, step=step - 1) for index in range(arrived)]
        made += arrived
        born |= {group.task.sequence: group.oldest_step for group in fresh}
        again = trainable_again(
            pool,
            trainings(batches[-staleness:]),
            step=step,
            max_staleness=staleness,
            max_trainings=times,
            interval=interval,
        )
        assert again == sorted(again, key=lambda group: (group.oldest_step, group.task.sequence))
        for group in (*fresh, *again):
            trained.setdefault(group.task.sequence, []).append(step)
        batches.append(a_batch_of(step, *fresh, *again))
        pool += fresh
    for sequence, steps in trained.items():
        assert len(steps) <= times
        assert all(after - earlier >= interval for earlier, after in itertools.pairwise(steps))
        assert steps[-1] - 1 - born[sequence] <= staleness


def test_a_group_is_trained_again_while_one_member_may_be_where_members_are_withheld() -> None:
    group = a_group(0, step=0, other=3)
    known = trainings([a_batch_of(1, group)])
    choose = partial(
        trainable_again, [group], known, step=5, max_staleness=2, max_trainings=2, interval=1
    )
    assert choose(withhold=True) == [group]
    assert choose(withhold=False) == []
