from __future__ import annotations

import asyncio

import pytest

from rl_contracts.documents.task import Task
from rl_sampler.episodes.group_completion import gather_enough, members_to_complete, seconds_left
from tests.samples.documents import a_task

ALL = a_task(group_size=4, attempt=1)
SOME = a_task(group_size=4, attempt=1, minimum=2, deadline_seconds=60)
LAST = a_task(group_size=4, attempt=5, minimum=2, deadline_seconds=60)
MEASURED = a_task(group_size=2, attempt=1, baseline=True)
SOME_MEASURED = a_task(group_size=4, attempt=1, baseline=True, minimum=2, deadline_seconds=60)


@pytest.mark.parametrize(
    ("task", "finished", "left", "members"),
    [
        (ALL, {0, 1, 2, 3}, 9, [0, 1, 2, 3]),
        (ALL, {0, 1, 2}, -9, None),
        (SOME, {3, 0, 1, 2}, 9, [0, 1, 2, 3]),
        (SOME, {3, 0}, 9, None),
        (SOME, {3, 0}, 0, [0, 3]),
        (SOME, {3}, -9, None),
        (LAST, {3, 0}, 9, [0, 3]),
        (LAST, {3}, 9, None),
        (MEASURED, {0, 1}, -9, None),
        (MEASURED, {0, 2}, -9, None),
        (MEASURED, {0, 1, 2}, 9, [0, 1, 2]),
        (SOME_MEASURED, {0, 3}, -9, None),
        (SOME_MEASURED, {0, 4}, -9, None),
        (SOME_MEASURED, {0, 3, 4}, 9, None),
        (SOME_MEASURED, {0, 3, 4}, -9, [0, 3, 4]),
    ],
)
def test_group_is_complete_by_its_declared_minimum_and_deadline(
    task: Task, finished: set[int], left: float, members: list[int] | None
) -> None:
    assert members_to_complete(finished, task, seconds_left=left) == members


def test_deadline_counts_from_the_first_claim() -> None:
    task = a_task(attempt=3, first_claimed_at=1000, deadline_seconds=60, lease_until=1050)
    assert seconds_left(task, lease_seconds=30, elapsed=0) == 40
    assert seconds_left(task, lease_seconds=30, elapsed=50) == -10


async def test_stragglers_are_cancelled_after_the_deadline_with_enough_results() -> None:
    late, cut = asyncio.Event(), []

    async def member(number: int) -> int:
        try:
            if number == 2:
                await late.wait()
            if number == 3:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            cut.append(number)
            raise
        return number * 10

    works = {number: member(number) for number in range(4)}
    running = asyncio.create_task(gather_enough(works, seconds=0.05, enough=3))
    done, _ = await asyncio.wait([running], timeout=0.3)
    assert not done, "two of the three that are wanted were taken"
    late.set()
    assert await running == {0: 0, 1: 10, 2: 20}
    assert cut == [3]


async def test_needed_members_are_waited_for_after_the_deadline() -> None:
    late = asyncio.Event()

    async def member(number: int) -> int:
        if number == 2:
            await late.wait()
        return number

    works = {number: member(number) for number in range(3)}
    running = asyncio.create_task(gather_enough(works, seconds=0, enough=1, needed=[2]))
    done, _ = await asyncio.wait([running], timeout=0.2)
    assert not done
    late.set()
    assert await running == {0: 0, 1: 1, 2: 2}


async def test_first_error_cancels_the_other_members() -> None:
    async def fails() -> int:
        raise ValueError("broken")

    async def forever() -> int:
        await asyncio.Event().wait()
        return 0

    with pytest.raises(ValueError, match="broken"):
        await gather_enough({0: fails(), 1: forever()}, seconds=60, enough=1)
