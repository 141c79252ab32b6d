"""Calls to the shared stores from the event loop: in threads, with outages told and survived."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from rl_contracts.errors import AccessDeniedError, StoreUnavailableError
from rl_contracts.stores.connect import Stores
from rl_sampler.engine.problems import Problems

P = ParamSpec("P")
T = TypeVar("T")

OUTAGES = (StoreUnavailableError, AccessDeniedError)
"""Errors that a later attempt may not meet: the store is down, or its credentials are mended."""
RETRY_SECONDS = 0.5


class SharedState:
    """The stores, for asyncio."""

    def __init__(self, stores: Stores, *, problems: Problems) -> None:
        self.stores = stores
        self._problems = problems

    async def ask(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Make one blocking call in a thread.

        Raises:
            StoreUnavailableError: after the stores' patience; also noted as a problem.
            AccessDeniedError: likewise.
        """
        try:
            result = await asyncio.to_thread(call, *args, **kwargs)
        except OUTAGES as error:
            self._problems.note("store", str(error))
            raise
        self._problems.clear("store")
        return result

    async def insist(self, call: Callable[[], T], *, wanted: Callable[[], bool], otherwise: T) -> T:
        """Make one call again and again through outages, as long as its result is wanted.

        Args:
            call: blocking; must be harmless when repeated.
            wanted: asked after each failure; False ends it.
            otherwise: the result then.
        """
        while True:
            try:
                return await self.ask(call)
            except OUTAGES:
                if not wanted():
                    return otherwise
                await asyncio.sleep(RETRY_SECONDS)
