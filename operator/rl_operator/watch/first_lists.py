"""The wait of a new leader for the first lists, which fill the cache that its reconciles read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

STALLED_SECONDS = 60.0
"""How long the lists may bring nothing before reconciles begin without them."""
MOST_SECONDS = 600.0
"""The longest wait. Objects that are made meanwhile look like progress too."""
POLL_SECONDS = 0.05


async def wait_for_lists(
    complete: Callable[[], bool],
    cached: Callable[[], int],
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> bool:
    """Wait until every list has come, for as long as they make progress; return whether all came.

    A list that the API server refuses never comes: reconciles read live then. Where all lists come,
    only late, waiting is the quicker way: a live reconcile of a job costs about ten requests.

    Args:
        complete: whether every list has come.
        cached: number of cached objects; it grows while lists come.
        clock: monotonic seconds.
        sleep: waits for some seconds.
    """
    began = progressed = clock()
    most = cached()
    while not complete():
        now, count = clock(), cached()
        if count > most:
            most, progressed = count, now
        if now - progressed >= STALLED_SECONDS or now - began >= MOST_SECONDS:
            return False
        await sleep(POLL_SECONDS)
    return True
