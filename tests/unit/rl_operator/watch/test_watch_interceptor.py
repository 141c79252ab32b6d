"""The informer receives the objects, and kopf the bookmarks from which it continues."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rl_operator.cache.projection import event_reader
from rl_operator.kube.kinds import POD
from rl_operator.watch.watch_interceptor import (
    CHANGES,
    GATHER_SECONDS,
    MUCH_BYTES,
    ListInterceptor,
    WatchInterceptor,
)

KINDS = (*CHANGES, "BOOKMARK", "ERROR")


class Body:
    """A body that comes in these pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece


def an_event(kind: str, version: int, filling: str = "") -> dict[str, Any]:
    metadata = {"name": f"é{filling}", "resourceVersion": str(version)}
    return {"type": kind, "object": {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}}


def read(
    pieces: list[bytes], *, pauses: list[float] | None = None
) -> tuple[list[tuple[str | None, Mapping[str, Any]]], bytes, int]:
    """What was told, what kopf reads, and how often the stream was heard."""
    changes: list[tuple[str | None, Mapping[str, Any]]] = []
    heard: list[None] = []

    async def pause(seconds: float) -> None:
        if pauses is not None:
            pauses.append(seconds)

    async def read_all() -> bytes:
        body: Any = Body(pieces)
        stream = WatchInterceptor(
            body,
            read=event_reader(POD.path("n")),
            on_piece=lambda: heard.append(None),
            on_object=lambda change, raw: changes.append((change, raw)),
            pause=pause,
        )
        return b"".join([piece async for piece in stream.iter_chunked(1 << 20)])

    left = asyncio.run(read_all())
    return changes, left, len(heard)


@given(
    kinds=st.lists(st.sampled_from(KINDS), max_size=12),
    cuts=st.lists(st.integers(0, 3000), max_size=12),
    filling=st.text(max_size=20),
)
def test_each_object_is_handed_on_once_and_in_order(
    kinds: list[str], cuts: list[int], filling: str
) -> None:
    events = [an_event(kind, number + 1, filling) for number, kind in enumerate(kinds)]
    whole = b"".join(json.dumps(event).encode() + b"\n" for event in events)
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    pieces = [whole[start:other] for start, other in itertools.pairwise(places)]
    changes, left, heard = read(pieces)
    assert changes == [
        (event["type"], event["object"]) for event in events if event["type"] in CHANGES
    ]
    assert heard == len(pieces)
    seen = [json.loads(line) for line in left.splitlines()]
    assert [event for event in seen if event["type"] == "ERROR"] == [
        event for event in events if event["type"] == "ERROR"
    ]
    versions = [event["object"]["metadata"]["resourceVersion"] for event in seen]
    assert versions[-1:] == [str(number) for number in [len(events)] if events]
    assert {event["type"] for event in seen} <= {"BOOKMARK", "ERROR"}


def test_the_reader_sleeps_after_each_piece_that_is_not_large() -> None:
    line = json.dumps(an_event("ADDED", 7)).encode() + b"\n"
    much = line.replace(b"{", b"{" + b" " * MUCH_BYTES, 1)
    pauses: list[float] = []
    changes, _, heard = read([line, much, line[:9], line[9:]], pauses=pauses)
    assert (len(changes), heard) == (3, 4)
    assert pauses == [GATHER_SECONDS] * 3


def test_a_truncated_line_is_left_to_kopf() -> None:
    changes, left, _ = read([json.dumps(an_event("ADDED", 7)).encode()[:-5]])
    assert changes == []
    assert left.startswith(b'{"type": "ADDED"')


EVERYWHERE, OF_ONE = "/apis/apps/v1/deployments", "/apis/apps/v1/namespaces/n/deployments"


def a_page(*names: str, more: str = "") -> dict[str, Any]:
    items = [{"metadata": {"name": name, "uid": f"u{name}"}} for name in names]
    metadata = {"resourceVersion": "7", "continue": more}
    return {"apiVersion": "apps/v1", "kind": "DeploymentList", "metadata": metadata, "items": items}


@dataclass
class Listing:
    """Lists, and the changes that they reported."""

    changes: list[tuple[str | None, Mapping[str, Any]]] = field(default_factory=list)
    wholes: list[tuple[str, str, set[str], int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lists = ListInterceptor(
            on_object=lambda change, raw: self.changes.append((change, raw)),
            on_list=lambda kind, namespace, items, version: self.wholes.append(
                (kind, namespace, set(items), version)
            ),
        )


def test_the_objects_of_a_list_are_handed_on_and_kopf_reads_an_empty_list() -> None:
    listing, body = Listing(), a_page("a", "b")
    left = listing.lists.without_items(EVERYWHERE, body, first=True)
    assert left == body | {"items": []}
    stamp = {"apiVersion": "apps/v1", "kind": "Deployment"}
    assert listing.changes == [(None, stamp | item) for item in body["items"]]


def test_the_end_of_a_list_names_the_objects_of_all_its_pages() -> None:
    listing = Listing()
    read = listing.lists.without_items
    read(OF_ONE, a_page("lost", more="x"), first=True)  # the list begins anew
    read(OF_ONE, a_page("a", more="x"), first=True)
    read(EVERYWHERE, a_page("b"), first=True)
    read(OF_ONE, a_page("c", more="y"), first=False)
    assert listing.wholes == [("Deployment", "", {"ub"}, 7)]
    read(OF_ONE, a_page("d"), first=False)
    assert listing.wholes[1:] == [("Deployment", "n", {"ua", "uc", "ud"}, 7)]


def test_an_answer_that_is_not_a_list_is_unchanged() -> None:
    read = Listing().lists.without_items
    body = {"kind": "APIResourceList", "resources": [{"name": "pods"}]}
    assert read("/api/v1", body, first=True) is body
    assert read("/api/v1", ["what nobody expects"], first=True)
