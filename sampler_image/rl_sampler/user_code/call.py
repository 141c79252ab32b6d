"""Calls user code with a time limit, in a thread where it is not async, and names its failures."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rl_contracts.errors import RLError
from rl_sampler.user_code.entry_point import is_async, short_error

CALLS = 32
"""Calls at a time of functions that are not async; others wait, and that time does not count."""
THREADS = 256
"""For these calls, and for calls that took too long: they no longer count, but keep a thread."""

BLOCKS = ", or another async function blocked the container `code` meanwhile"


class UserCodeError(RLError):
    """A scorer, tool or agent of the user failed: the user's code must change. Never a reward."""


class UserCodeTimeoutError(UserCodeError):
    """User code did not return in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserThreads:
    """Threads for the user's code only."""

    pool: ThreadPoolExecutor
    slots: asyncio.Semaphore
    """Of the calls that run and have time left."""


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
            RLError: the call raised one of these on purpose, such as ToolDownError.
        """
        if is_async(self.call):
            return await self._limited(functools.partial(self.call, *positional, **named))
        bound = functools.partial(self._called, *positional, **named)
        begin = asyncio.get_running_loop().run_in_executor
        async with self.threads.slots:
            return await self._limited(functools.partial(begin, self.threads.pool, bound))

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
                hint = BLOCKS if is_async(self.call) else ""
                raise UserCodeTimeoutError(
                    f"{self.name} took more than {self.seconds:g} s{hint}"
                ) from error
            raise self._failed(error) from error

    def _called(self, *positional: Any, **named: Any) -> Any:
        """Call it in a thread. Hazard: a future that is given a StopIteration is never done."""
        try:
            return self.call(*positional, **named)
        except StopIteration as error:
            raise self._failed(error) from error

    def _failed(self, error: BaseException) -> UserCodeError:
        return UserCodeError(f"{self.name} raised {short_error(error)}")
