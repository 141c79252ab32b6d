"""When a group is complete: all of its members, or enough of them once its deadline is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, TypeVar

from rl_contracts.documents.task import Task

T = TypeVar("T")


def chosen(finished: Collection[int], task: Task, *, seconds_left: float) -> list[int] | None:
    """Members with which the task is complete, in order; None while it is not.

    Where a minimum is declared it also saves the group on its last attempt, deadline or not.

    Args:
        finished: members with a usable rollout.
        task: as this attempt claimed it.
        seconds_left: until the group's deadline.
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
    """Until the group's deadline, as far as this attempt's own clock tells.

    Args:
        task: as this attempt claimed it.
        lease_seconds: of the claim.
        elapsed: monotonic seconds since the claim.
    """
    claimed_at = task.lease_until - lease_seconds
    return task.first_claimed_at + task.deadline_seconds - claimed_at - elapsed


async def gathered(
    works: Mapping[int, Coroutine[Any, Any, T]],
    *,
    seconds: float,
    enough: int,
    counts: Callable[[T], bool] = lambda result: True,
    needed: Collection[int] = (),
) -> dict[int, T]:
    """Do all of it; after so many seconds only until so many results that count are there.

    Those of ``needed`` members are waited for all the same.

    What is not done by then is cancelled. The first error cancels the rest and is raised.
    """
    running = {asyncio.ensure_future(work): member for member, work in works.items()}
    ends = asyncio.get_running_loop().time() + max(0.0, seconds)
    waiting = set(running)
    try:
        while waiting:
            left = ends - asyncio.get_running_loop().time()
            good = sum(counts(one.result()) for one in running if one not in waiting)
            missed = any(running[one] in needed for one in waiting)
            if left <= 0 and good >= enough and not missed:
                break
            done, waiting = await asyncio.wait(
                waiting,
                timeout=left if left > 0 else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for one in done:
                one.result()
    finally:
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    return {member: one.result() for one, member in running.items() if one not in waiting}
