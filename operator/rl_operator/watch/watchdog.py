"""The watchdog: a watch that falls silent, or whose kind is gone, ends the process.

The API server sends a bookmark to each watch about once a minute, also while nothing changes. So
every piece of every watch's answer counts as a sign of life.
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
from rl_operator.watch.watch_interceptor import ListInterceptor, OnList, OnObject, WatchInterceptor


class WatchLostError(RLError):
    """Ends a process that has no defect. Its message is logged without a traceback."""


class WatchSilentError(WatchLostError):
    """Watches are silent, so changes may be missed; a new process begins with new lists."""

    def __init__(self, paths: Iterable[str], *, seconds: float) -> None:
        self.paths = tuple(sorted(paths))
        named = ", ".join(self.paths)
        super().__init__(f"the watches of {named} have been silent for {seconds:.0f} s; restarting")


class KindGoneError(WatchLostError):
    """A watched kind was uninstalled. Kopf would stop watching all other kinds as well."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = tuple(sorted(paths))
        super().__init__(
            f"the API server no longer serves {', '.join(self.paths)}; restarting to watch the "
            "kinds that are installed"
        )


class Watchdog:
    """When each watch was last heard from, by its path in the API. Safe for any thread."""

    def __init__(
        self, required: Iterable[str], *, clock: Callable[[], float], seconds: float
    ) -> None:
        """Start the silence of every required watch now.

        Args:
            required: paths of watches that must exist. Others count from their first sign of life,
                because a kind of another operator may not be installed.
            clock: monotonic seconds.
            seconds: a watch that is silent for longer is dead.
        """
        self._clock, self.seconds = clock, seconds
        self._heard = dict.fromkeys(required, clock())
        self._begun: set[str] = set()
        self._gone: set[str] = set()
        self._lock = threading.Lock()

    def hear(self, path: str) -> None:
        """Note a sign of life of a watch. A proxy may have put a prefix before its path."""
        known = path[path.index("/api") :]
        with self._lock:
            self._heard[known] = self._clock()
            self._begun.add(known)

    def lose(self, path: str) -> bool:
        """Note that the API server does not serve a path; return whether it is a watched one."""
        known = path[path.index("/api") :] if "/api" in path else path
        with self._lock:
            if known in self._heard:
                self._gone.add(known)
            return known in self._gone

    def have_begun(self, paths: Iterable[str]) -> bool:
        """Whether all of these watches were heard from: they show every change from now on."""
        with self._lock:
            return self._begun.issuperset(paths)

    def silences(self) -> dict[str, float]:
        """Seconds since each watch was last heard from, by path."""
        with self._lock:
            now = self._clock()
            return {path: now - at for path, at in self._heard.items()}

    def check(self) -> None:
        """Raise if a watch is lost.

        Raises:
            KindGoneError: a watched kind was uninstalled.
            WatchSilentError: a watch has been silent for too long.
        """
        with self._lock:
            gone = set(self._gone)
        if gone:
            raise KindGoneError(gone)
        dead = [path for path, silent in self.silences().items() if silent > self.seconds]
        if dead:
            raise WatchSilentError(dead, seconds=self.seconds)


def session_for(
    watchdog: Watchdog, *, on_object: OnObject, on_list: OnList, **options: Any
) -> aiohttp.ClientSession:
    """An HTTP session for kopf, whose lists and watches are intercepted. Needs a running loop.

    A request for a watched kind that is gone gets no answer until it is cancelled: kopf would take
    the 404 for a defect, and ``Watchdog.check`` has raised by then.

    Args:
        watchdog: hears from every watch.
        on_object: called with each object that a list or a watch shows.
        on_list: called at the end of each list.
        **options: of ``aiohttp.ClientSession``.
    """
    lists = ListInterceptor(on_object=on_object, on_list=on_list)

    class Response(aiohttp.ClientResponse):
        async def start(self, connection: Any) -> aiohttp.ClientResponse:
            started = await super().start(connection)
            path = self.url.path
            if self.method == "GET" and self.status == 404 and watchdog.lose(path):
                # Kopf would drop its other watches, cancel them in no order after 5 s, and log a
                # traceback for each. The watchdog stops it in order instead.
                await asyncio.Event().wait()
            if self.url.query.get("watch") == "true" and self.status == 200:
                watchdog.hear(path)
                body = WatchInterceptor(
                    started.content,
                    read=event_reader(path),
                    on_piece=lambda: watchdog.hear(path),
                    on_object=on_object,
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
