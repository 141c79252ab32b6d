"""Calls user code with a time limit, in a thread where it is not async, and names its failures."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rl_contracts.errors import RLError
from rl_sampler.user_code.entry_point import is_async, short_error

CALLS = 32
"""Calls at a time of functions that are not async; others wait, and that time does not count."""
THREADS = 256
"""For these calls, and for calls that took too long: they no longer count, but keep a thread."""

BLOCKS = "or an async function blocked the container `code` meanwhile"


class UserCodeError(RLError):
    """A scorer, tool or agent of the user failed: the user's code must change. Never a reward."""


class UserCodeTimeoutError(UserCodeError):
    """User code did not return in time."""


class NoThreadError(RLError):
    """A call got no thread, so nothing of it ran: an infrastructure error, not the code's fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserThreads:
    """Threads for the user's code only."""

    pool: ThreadPoolExecutor
    slots: asyncio.Semaphore
    """Of the calls that run and have time left, also where nobody waits for them any more."""


class _Slot:
    """A slot of a call: given back once, when its thread ends or its time is over."""

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self._slots, self._loop = slots, asyncio.get_running_loop()
        self._held = True
        self._timer: asyncio.TimerHandle | None = None
        self.begun = asyncio.Event()

    def begin(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self.release)
        self.begun.set()

    def release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._held:
            self._held = False
            self._slots.release()

    def soon(self, call: Callable[..., None], *positional: Any) -> None:
        """Have the event loop call it; for any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *positional)


def _run(bound: Callable[[], Any], running: Future[Any], slot: _Slot, seconds: float) -> None:
    """Call a function in a thread, unless its future was cancelled, and give that the result."""
    if not running.set_running_or_notify_cancel():
        return
    slot.soon(slot.begin, seconds)
    try:
        result = bound()
    except BaseException as error:  # noqa: BLE001 - whoever waits for the future gets it
        running.set_exception(error)
    else:
        running.set_result(result)


def _has_result(running: Future[Any]) -> bool:
    """Whether a call in a thread has ended, and nothing is still to be waited for."""
    if not running.done() or running.cancelled():
        return False
    return running.exception() is not None or not inspect.isawaitable(running.result())


def user_threads() -> UserThreads:
    """Threads for all of a manifest's code."""
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="user code")
    return UserThreads(pool=pool, slots=asyncio.Semaphore(CALLS))


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCallable:
    """A function or object of the user."""

    name: str
    """For messages, such as ``scorer Brevity (my_scorers:brevity)``."""
    call: Callable[..., Any]
    seconds: float
    """Time limit of a call, from when it begins to run."""
    threads: UserThreads

    async def __call__(self, *positional: Any, **named: Any) -> Any:
        """Call the function.

        Raises:
            UserCodeTimeoutError: the call did not return in time. Hazard: a thread cannot be
                stopped, so a function that is not async runs on.
            UserCodeError: the call raised any other exception.
            NoThreadError: it was not called: there was no thread, or none within its time limit.
            RLError: the call raised one of these on purpose, such as ToolDownError.
        """
        if is_async(self.call):
            return await self._limited(functools.partial(self.call, *positional, **named))
        bound = functools.partial(self._called, *positional, **named)
        running = await self._in_thread(bound)
        try:
            return await self._limited(lambda: asyncio.wrap_future(running))
        except UserCodeTimeoutError:
            if not _has_result(running):
                raise
        # It returned while the event loop was blocked, so that only its end was seen too late.
        return await self._limited(lambda: asyncio.wrap_future(running))

    async def _in_thread(self, bound: Callable[[], Any]) -> Future[Any]:
        """Wait for a slot and a thread; returns when the function begins.

        Raises:
            NoThreadError: there was a slot, and no thread, or none within the time limit.
        """
        await self.threads.slots.acquire()
        slot, running = _Slot(self.threads.slots), Future[Any]()
        # Of the thread itself: an asyncio.Future that is cancelled is done while the thread runs.
        running.add_done_callback(lambda _: slot.soon(slot.release))
        try:
            self.threads.pool.submit(_run, bound, running, slot, self.seconds)
        except RuntimeError as error:  # such as a limit of processes
            # The pool keeps the work for its next free thread, which may have begun it already.
            if running.cancel():
                slot.release()
                raise NoThreadError(
                    f"{self.name} was not called, because no thread could be started: "
                    f"{short_error(error)}; look for a limit of processes of the container `code`"
                ) from error
        try:
            async with asyncio.timeout(self.seconds):
                await slot.begun.wait()
        except TimeoutError as error:
            if slot.begun.is_set() or not running.cancel():  # while the event loop was blocked
                return running
            raise NoThreadError(
                f"{self.name} did not begin within {self.seconds:g} s: {THREADS} calls that took "
                "too long still run, and each keeps a thread"
            ) from error
        except asyncio.CancelledError:
            running.cancel()
            raise
        return running

    async def _limited(self, begin: Callable[[], Awaitable[Any]]) -> Any:
        limit = asyncio.timeout(self.seconds)
        try:
            async with limit:
                result = await begin()
                # Such as of an async function behind a decorator that is not async.
                return await result if inspect.isawaitable(result) else result
        except RLError:
            raise
        except (Exception, SystemExit) as error:  # the rollout boundary: the user's error
            if limit.expired():
                raise UserCodeTimeoutError(
                    f"{self.name} took more than {self.seconds:g} s, {BLOCKS}"
                ) from error
            raise self._failed(error) from error

    def _called(self, *positional: Any, **named: Any) -> Any:
        """Call it in a thread.

        Hazard: a future that is given a StopIteration is never done, and one that is given a
        CancelledError looks as if its waiter had been cancelled.
        """
        try:
            return self.call(*positional, **named)
        except (StopIteration, CancelledError, asyncio.CancelledError) as error:
            raise self._failed(error) from error

    def _failed(self, error: BaseException) -> UserCodeError:
        return UserCodeError(f"{self.name} raised {short_error(error)}")
