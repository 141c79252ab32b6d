"""Takes the objects out of a list's or a watch's answer before kopf reads it.

Kopf lists, asks again, renews credentials and begins anew after a 410. It is given an empty list,
or a bookmark in place of each object, so that it goes on from there: a task, a queue and the
wrappers that it makes for every object of every event would cost more than all that the operator
does with them. And once a watch has begun, all that was listed before has been told, and what was
not: after a 410 a list alone shows what went while nobody watched.

JSON is read by pydantic's parser, in a fifth of the time of the standard library's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import Any

import aiohttp
from pydantic_core import to_json

from rl_operator.cache.projection import Read

Told = Callable[[str | None, Mapping[str, Any]], None]
"""Called with a change, None where an object was listed, and the object."""
Whole = Callable[[str, str, Collection[str], int], None]
"""Called at a list's end with kind, namespace (empty: all), uids of all its pages, and version."""
CHANGES = ("ADDED", "MODIFIED", "DELETED")
GATHER_SECONDS, MUCH_BYTES = 0.05, 65_536
"""After a piece one waits so long for what follows: among full cores to wake up for each change is
dearer than to read it. After so much one does not: it comes as fast as it is read."""


class Lists:
    """The lists under way, page by page."""

    def __init__(self, *, told: Told, whole: Whole) -> None:
        self._told, self._whole = told, whole
        self._shown: dict[str, set[str]] = {}
        """Uids by the path of the list."""

    def without_items(self, path: str, body: Any, *, first: bool) -> Any:
        """An answer as kopf reads it: a list without its objects, or what it was.

        Args:
            path: that was asked for.
            body: the answer.
            first: it is not the continuation of another page.
        """
        if not isinstance(body, dict) or "items" not in body:
            return body
        # Items of a list name neither.
        stamp = {"apiVersion": body["apiVersion"], "kind": body["kind"].removesuffix("List")}
        shown = set[str]() if first else self._shown.pop(path, set())
        for item in body["items"] or []:
            self._told(None, stamp | item)
            shown.add(item["metadata"]["uid"])
        if body["metadata"].get("continue"):
            self._shown[path] = shown
        else:
            version = int(body["metadata"]["resourceVersion"])
            self._whole(stamp["kind"], _namespace_of(path), shown, version)
        return body | {"items": []}


def _namespace_of(path: str) -> str:
    """Of a collection's path; empty where it is that of all namespaces."""
    _, marked, rest = path.partition("/namespaces/")
    return rest.partition("/")[0] if marked else ""


class Stream:
    """The body of a watch's answer, as kopf reads it."""

    def __init__(
        self,
        content: aiohttp.StreamReader,
        *,
        read: Read,
        heard: Callable[[], None],
        told: Told,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Wrap a body.

        Args:
            content: the body.
            read: reads a line.
            heard: called for each piece of it.
            told: called with each change and its object, in their order.
            pause: waits so many seconds.
        """
        self._content, self._read, self._heard, self._told = content, read, heard, told
        self._pause = pause

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Pieces of whole lines: bookmarks, errors, and what nobody knows."""
        held = b""
        async for piece in self._content.iter_chunked(size):
            self._heard()
            *lines, held = (held + piece).split(b"\n")
            left = self._left(lines)
            if left:
                yield left
            if len(piece) < MUCH_BYTES:
                await self._pause(GATHER_SECONDS)
        if held:
            yield held

    def _left(self, lines: list[bytes]) -> bytes:
        """What kopf is to read of some lines, in which the objects of the others are told."""
        found, last = [], b""
        for line in filter(None, lines):
            event = self._read(line)
            if event["type"] in CHANGES:
                self._told(event["type"], event["object"])
                last = _bookmark(event["object"])
            else:
                found += [last, line, b"\n"]
                last = b""
        return b"".join([*found, last])


def _bookmark(raw: Mapping[str, Any]) -> bytes:
    at = {key: raw[key] for key in ("apiVersion", "kind")}
    at["metadata"] = {"resourceVersion": raw["metadata"]["resourceVersion"]}
    return to_json({"type": "BOOKMARK", "object": at}) + b"\n"
