"""Calls to the shared stores from the event loop: in threads, with outages reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from rl_contracts.errors import AccessDeniedError, CommandRefusedError, StoreUnavailableError
from rl_contracts.stores.connect import Stores
from rl_sampler.engine.problems import Problems

P = ParamSpec("P")
T = TypeVar("T")

OUTAGES = (StoreUnavailableError, AccessDeniedError, CommandRefusedError)
"""Errors after which a later attempt may succeed: a store is down, denies access, or refuses a
command until its settings are corrected."""
RETRY_SECONDS = 0.5


class SharedStores:
    """The stores, for asyncio."""

    def __init__(self, stores: Stores, *, problems: Problems) -> None:
        self.stores = stores
        self._problems = problems

    async def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a blocking function in a thread.

        Raises:
            StoreUnavailableError, AccessDeniedError, CommandRefusedError: after the stores' own
                retries; also recorded as a problem.
        """
        try:
            result = await asyncio.to_thread(function, *args, **kwargs)
        except OUTAGES as error:
            self._problems.note("store", str(error))
            raise
        self._problems.clear("store")
        return result

    async def retry(
        self, function: Callable[[], T], *, wanted: Callable[[], bool], otherwise: T
    ) -> T:
        """Repeat a call through outages while its result is wanted.

        Args:
            function: blocking, and idempotent.
            wanted: evaluated after each failure; False ends the repetition.
            otherwise: returned in that case.
        """
        while True:
            try:
                return await self.call(function)
            except OUTAGES:
                if not wanted():
                    return otherwise
                await asyncio.sleep(RETRY_SECONDS)

    async def until_done(self, function: Callable[[], T]) -> T:
        """Repeat a call through outages until it succeeds, or whoever waits is cancelled.

        Args:
            function: blocking, and idempotent.
        """
        while True:
            try:
                return await self.call(function)
            except OUTAGES:
                await asyncio.sleep(RETRY_SECONDS)
