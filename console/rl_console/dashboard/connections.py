"""Connections to the shared dashboard: a bounded number, none of which is kept for silence."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS = 512
"""At the same time, besides those whose requests are being answered."""


class YieldingConnection(H11Protocol):  # type: ignore[misc]  # mypy does not read uvicorn
    """Beyond the number a new connection takes the place of the oldest that sends no request.

    Whoever opens connections and says nothing keeps no viewer out; of requests each viewer has only
    so many at once (``gate``).
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As its base, and end the oldest where there are too many."""
        super().connection_made(transport)
        self.began = self.loop.time()
        silent = [each for each in self.connections if each.is_silent and each is not self]
        too_many = len(silent) + 1 - CONNECTIONS
        for each in sorted(silent, key=lambda each: each.began)[: max(0, too_many)]:
            each.transport.abort()

    @property
    def is_silent(self) -> bool:
        """Whether no request of it is being answered, and it has not ended."""
        answering = self.cycle is not None and not self.cycle.response_complete
        return not answering and not self.transport.is_closing()
