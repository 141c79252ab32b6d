"""The time limits of calls of user code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rl_sampler.user_code.call import UserCallable, UserCodeTimeoutError, UserThreads
from tests.waiting import HUNG_SECONDS

SHORT_SECONDS = 0.2


@pytest.fixture
def ended() -> Iterator[threading.Event]:
    """Set when the test is over, so that calls which wait for it return."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def threads(ended: threading.Event) -> UserThreads:
    return UserThreads(pool=ThreadPoolExecutor(2), slots=asyncio.Semaphore(1))


def a_call(call: Callable[[], Any], threads: UserThreads, *, seconds: float) -> UserCallable:
    return UserCallable(name="scorer", call=call, seconds=seconds, threads=threads)


async def test_the_wait_for_other_calls_is_not_part_of_a_time_limit(
    ended: threading.Event, threads: UserThreads
) -> None:
    slow = a_call(lambda: ended.wait(2 * SHORT_SECONDS), threads, seconds=HUNG_SECONDS)
    quick = a_call(lambda: "quick", threads, seconds=SHORT_SECONDS)
    answers: list[object] = await asyncio.gather(slow(), quick())
    assert answers == [False, "quick"]


async def test_a_call_that_hangs_holds_up_no_other(
    ended: threading.Event, threads: UserThreads
) -> None:
    hangs = a_call(lambda: ended.wait(HUNG_SECONDS), threads, seconds=SHORT_SECONDS)
    quick = a_call(lambda: "quick", threads, seconds=HUNG_SECONDS)
    answers: list[object] = await asyncio.gather(hangs(), quick(), return_exceptions=True)
    assert isinstance(answers[0], UserCodeTimeoutError)
    assert answers[1] == "quick"
    assert not ended.is_set()
