"""Whether the watches are heard of: one that is silent, or whose kind is gone, ends the process.

That a stream lives while nothing changes is told by the API server's bookmarks, about one a minute,
so every piece of every watch's answer is noted here.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from typing import Any, cast

import aiohttp

from rl_contracts.errors import RLError
from rl_operator.cache.projection import event_reader, list_reader
from rl_operator.kube.transport import parsed
from rl_operator.watch.watch_interceptor import Lists, Stream, Told, Whole


class WatchLostError(RLError):
    """What ends a process in which nothing is wrong: its words are all that there is to tell."""


class WatchSilentError(WatchLostError):
    """Changes of some kinds may not be told any more; a new process begins with a new list."""

    def __init__(self, paths: Iterable[str], *, seconds: float) -> None:
        self.paths = tuple(sorted(paths))
        told = ", ".join(self.paths)
        super().__init__(f"nothing was heard from the watches of {told} for {seconds:.0f} s")


class KindGoneError(WatchLostError):
    """The API server knows a watched kind no more, and kopf would watch none of the others."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = tuple(sorted(paths))
        super().__init__(
            f"the API server does not know {', '.join(self.paths)} any more: the process ends, "
            "for the next one begins with the kinds that there are"
        )


class Streams:
    """When each watch was heard of last, by its path in the API. For any thread."""

    def __init__(
        self, required: Iterable[str], *, clock: Callable[[], float], seconds: float
    ) -> None:
        """Count from now.

        Args:
            required: paths of watches that there must be; others count once they are heard of,
                for a kind of others may not be installed.
            clock: monotonic seconds.
            seconds: a watch that is silent for longer is taken for dead.
        """
        self._clock, self.seconds = clock, seconds
        self._heard = dict.fromkeys(required, clock())
        self._begun: set[str] = set()
        self._gone: set[str] = set()
        self._lock = threading.Lock()

    def hear(self, path: str) -> None:
        """Note a sign of life; the API server may stand behind a prefix of the path."""
        known = path[path.index("/api") :]
        with self._lock:
            self._heard[known] = self._clock()
            self._begun.add(known)

    def lose(self, path: str) -> bool:
        """Note that the API server knows no such path; whether it counts, for it is watched."""
        known = path[path.index("/api") :] if "/api" in path else path
        with self._lock:
            if known in self._heard:
                self._gone.add(known)
            return known in self._gone

    def have_begun(self, paths: Iterable[str]) -> bool:
        """Whether all of these watches have been heard of: whatever changes from now on is told."""
        with self._lock:
            return self._begun.issuperset(paths)

    def silences(self) -> dict[str, float]:
        """Seconds since each watch was heard of."""
        with self._lock:
            now = self._clock()
            return {path: now - at for path, at in self._heard.items()}

    def check(self) -> None:
        """Raise KindGoneError or WatchSilentError: a watch's kind is gone, or it is silent."""
        with self._lock:
            gone = set(self._gone)
        if gone:
            raise KindGoneError(gone)
        dead = [path for path, silent in self.silences().items() if silent > self.seconds]
        if dead:
            raise WatchSilentError(dead, seconds=self.seconds)


def session_for(
    streams: Streams, *, told: Told, whole: Whole, **options: Any
) -> aiohttp.ClientSession:
    """A session, with aiohttp's options, whose watches are listened to. For a running loop.

    ``told`` is called with what is listed, and with each change that watches tell of; ``whole`` at
    the end of each list. A request whose watched kind is gone is not answered until it is
    cancelled: ``Streams.check`` has raised by then.
    """
    lists = Lists(told=told, whole=whole)

    class Response(aiohttp.ClientResponse):
        async def start(self, connection: Any) -> aiohttp.ClientResponse:
            started = await super().start(connection)
            if self.method == "GET" and self.status == 404 and streams.lose(self.url.path):
                # Kopf takes it for a defect: it leaves its other watches alone, cancels them in no
                # order after 5 s, and logs a traceback for each. It is told to stop instead.
                await asyncio.Event().wait()
            if self.url.query.get("watch") == "true" and self.status == 200:
                streams.hear(self.url.path)
                path = self.url.path
                body = Stream(
                    started.content,
                    read=event_reader(path),
                    heard=lambda: streams.hear(path),
                    told=told,
                )
                started.content = cast("aiohttp.StreamReader", body)
            return started

        async def json(self, **options: Any) -> Any:
            if self.method != "GET" or self.status != 200:
                return await super().json(**{"loads": parsed, **options})
            body = list_reader(self.url.path)(await self.read())
            first = "continue" not in self.url.query
            return lists.without_items(self.url.path, body, first=first)

    return aiohttp.ClientSession(response_class=Response, **options)
