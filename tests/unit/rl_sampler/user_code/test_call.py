"""The time limits of calls of user code."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rl_sampler.user_code.call import (
    NoThreadError,
    UserCallable,
    UserCodeError,
    UserCodeTimeoutError,
    UserThreads,
)
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


def a_call(act: Callable[[], Any], threads: UserThreads, *, seconds: float) -> UserCallable:
    return UserCallable(name="scorer", call=act, seconds=seconds, threads=threads)


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


async def test_a_call_that_nobody_waits_for_any_more_keeps_its_slot_until_it_returns(
    ended: threading.Event, threads: UserThreads
) -> None:
    begun = threading.Event()

    def slow() -> bool:
        begun.set()
        return ended.wait(HUNG_SECONDS)

    cancelled = asyncio.create_task(a_call(slow, threads, seconds=HUNG_SECONDS)())
    await asyncio.to_thread(begun.wait, HUNG_SECONDS)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    assert threads.slots.locked()
    ended.set()
    assert await a_call(lambda: "next", threads, seconds=HUNG_SECONDS)() == "next"


async def test_a_call_that_nobody_waits_for_any_more_keeps_its_slot_for_its_time(
    ended: threading.Event, threads: UserThreads
) -> None:
    begun = threading.Event()

    def hangs() -> bool:
        begun.set()
        return ended.wait(HUNG_SECONDS)

    cancelled = asyncio.create_task(a_call(hangs, threads, seconds=SHORT_SECONDS)())
    await asyncio.to_thread(begun.wait, HUNG_SECONDS)
    cancelled.cancel()
    assert await a_call(lambda: "next", threads, seconds=HUNG_SECONDS)() == "next"
    assert not ended.is_set()


async def test_a_call_that_gets_no_thread_says_that_others_keep_them(
    ended: threading.Event, threads: UserThreads
) -> None:
    """Calls that took too long have all threads."""
    for _ in range(2):
        threads.pool.submit(ended.wait, HUNG_SECONDS)
    quick = a_call(lambda: "quick", threads, seconds=SHORT_SECONDS)
    with pytest.raises(NoThreadError, match=r"did not begin within 0.2 s.*keeps a thread"):
        await quick()
    ended.set()
    assert await a_call(lambda: "next", threads, seconds=HUNG_SECONDS)() == "next"


async def test_a_call_that_failed_because_no_thread_could_start_does_not_run_later(
    ended: threading.Event, threads: UserThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as at a limit of processes. The pool has queued it all the same."""

    def fails(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    made: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fails)
        with pytest.raises(NoThreadError, match="can't start new thread; look for a limit"):
            await a_call(lambda: made.append("first"), threads, seconds=HUNG_SECONDS)()
    await a_call(lambda: made.append("second"), threads, seconds=HUNG_SECONDS)()
    assert made == ["second"]
    assert not threads.slots.locked()


@pytest.mark.parametrize(
    "error", [StopIteration(), concurrent.futures.CancelledError(), asyncio.CancelledError()]
)
async def test_an_error_that_a_future_cannot_hold_is_one_of_the_users_code(
    threads: UserThreads, error: BaseException
) -> None:
    def fails() -> None:
        raise error

    with pytest.raises(UserCodeError, match=f"raised {type(error).__name__}"):
        await a_call(fails, threads, seconds=HUNG_SECONDS)()


async def test_a_call_that_begins_while_the_event_loop_is_blocked_is_not_late(
    ended: threading.Event, threads: UserThreads
) -> None:
    quick = asyncio.create_task(a_call(lambda: "quick", threads, seconds=SHORT_SECONDS)())
    await asyncio.sleep(0)
    time.sleep(2 * SHORT_SECONDS)  # noqa: ASYNC251 - as an async scorer that blocks
    assert await quick == "quick"


@pytest.mark.parametrize("fails", [False, True])
async def test_a_call_that_ends_while_the_event_loop_is_blocked_has_its_own_result(
    ended: threading.Event, threads: UserThreads, fails: bool
) -> None:
    begun = threading.Event()

    def act() -> str:
        begun.set()
        ended.wait(HUNG_SECONDS)
        if fails:
            raise KeyError("x")
        return "quick"

    quick = asyncio.create_task(a_call(act, threads, seconds=SHORT_SECONDS)())
    await asyncio.to_thread(begun.wait, HUNG_SECONDS)
    ended.set()
    time.sleep(2 * SHORT_SECONDS)  # noqa: ASYNC251 - as an async scorer that blocks
    if fails:
        with pytest.raises(UserCodeError, match="raised KeyError: 'x'"):
            await quick
    else:
        assert await quick == "quick"


async def test_a_call_that_takes_too_long_says_what_else_may_have_blocked(
    ended: threading.Event, threads: UserThreads
) -> None:
    hangs = a_call(lambda: ended.wait(HUNG_SECONDS), threads, seconds=SHORT_SECONDS)
    with pytest.raises(UserCodeTimeoutError, match=r"took more than 0.2 s, or an async function"):
        await hangs()


async def test_a_call_that_is_cancelled_while_it_waits_for_a_thread_gives_its_slot_back(
    ended: threading.Event, threads: UserThreads
) -> None:
    for _ in range(2):
        threads.pool.submit(ended.wait, HUNG_SECONDS)
    waiting = asyncio.create_task(a_call(lambda: "quick", threads, seconds=HUNG_SECONDS)())
    await asyncio.sleep(0)
    assert threads.slots.locked()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    ended.set()
    assert await a_call(lambda: "next", threads, seconds=HUNG_SECONDS)() == "next"
