"""When a group is complete: with all of its members, or with enough of them after its deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, TypeVar

from rl_contracts.documents.task import Task

T = TypeVar("T")


def members_to_complete(
    finished: Collection[int], task: Task, *, seconds_left: float
) -> list[int] | None:
    """Members with which the task is complete, in order; None while it is incomplete.

    A declared minimum also completes the group on its last attempt, whatever the deadline.

    Args:
        finished: numbers of the members with a usable rollout.
        task: as this attempt claimed it.
        seconds_left: until the group's deadline; negative after it.
    """
    if len(finished) == task.num_members:
        return sorted(finished)
    if task.baseline and task.group_size not in finished:
        return None
    enough = 0 < task.minimum <= len(finished) - task.baseline
    if enough and (seconds_left <= 0 or task.exhausted):
        return sorted(finished)
    return None


def seconds_left(task: Task, *, lease_seconds: float, elapsed: float) -> float:
    """Seconds until the group's deadline, by this process's own clock; negative after it.

    Args:
        task: as this attempt claimed it.
        lease_seconds: of the claim.
        elapsed: monotonic seconds since the claim.
    """
    claimed_at = task.lease_until - lease_seconds
    return task.first_claimed_at + task.deadline_seconds - claimed_at - elapsed


async def gather_enough(
    works: Mapping[int, Coroutine[Any, Any, T]],
    *,
    seconds: float,
    enough: int,
    counts: Callable[[T], bool] = lambda result: True,
    needed: Collection[int] = (),
) -> dict[int, T]:
    """Run the work of all members; after a time stop as soon as enough results are there.

    Work that is unfinished then is cancelled. The first error cancels all other work and is raised.

    Args:
        works: by member.
        seconds: how long all results are waited for.
        enough: after that time, as many results that count end the wait.
        counts: whether a result counts.
        needed: members that are waited for in any case.

    Returns:
        Results of the members that finished, by member in ascending order.
    """
    running = {asyncio.ensure_future(work): member for member, work in works.items()}
    clock = asyncio.get_running_loop().time
    ends = clock() + max(0.0, seconds)
    waiting, results = set(running), dict[int, T]()

    def suffices() -> bool:
        good = sum(map(counts, results.values()))
        return good >= enough and not any(running[task] in needed for task in waiting)

    try:
        while waiting:
            left = ends - clock()
            if left <= 0 and suffices():
                break
            done, waiting = await asyncio.wait(
                waiting,
                timeout=left if left > 0 else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            results |= {running[task]: task.result() for task in done}
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    return dict(sorted(results.items()))


async def gather_all(works: Collection[Coroutine[Any, Any, T]]) -> list[T]:
    """Run all work to its end, also after an error; then raise the first error, if any.

    Returns:
        The results, in the order of ``works``.
    """
    results = await asyncio.gather(*works, return_exceptions=True)
    values: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        values.append(result)
    return values
