"""Calls user code: in time, off the event loop where it is not async, its failures named."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rl_contracts.errors import RLError
from rl_sampler.user_code.entry_point import is_async, words
from rl_sampler.user_code.errors import TooLongError, UserCodeError

THREADS = 32
"""For functions that are not async; one that hangs takes one of these, and none of the agent's."""


def user_threads() -> ThreadPoolExecutor:
    """Threads for the user's code alone."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="user code")


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """One callable of the user's."""

    name: str
    """For messages, e.g. ``scorer Brevity (my_scorers:brevity)``."""
    call: Callable[..., Any]
    seconds: float
    threads: ThreadPoolExecutor

    async def __call__(self, *positional: Any, **named: Any) -> Any:
        """Call it.

        Raises:
            TooLongError: it did not return in time; a thread cannot be stopped and goes on.
            UserCodeError: it raised something.
            RLError: the same that it raised on purpose, e.g. ToolDownError.
        """
        limit = asyncio.timeout(self.seconds)
        try:
            async with limit:
                if is_async(self.call):
                    return await self.call(*positional, **named)
                asked = functools.partial(self.call, *positional, **named)
                return await asyncio.get_running_loop().run_in_executor(self.threads, asked)
        except RLError:
            raise
        except Exception as error:  # part of the rollout boundary: told as the user's
            if limit.expired():
                raise TooLongError(f"{self.name} took more than {self.seconds:g} s") from error
            raise UserCodeError(f"{self.name} raised {words(error)}") from error
