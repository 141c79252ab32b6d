"""The cache is trusted exactly as long as nothing is known to have happened since a live read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rl_operator.cache.cached_reader import KEPT_IN_PACE, CachedReader, Reads
from rl_operator.cache.object_cache import ObjectCache
from rl_operator.kube.api_errors import ApiConflictError, ApiMissingError
from rl_operator.kube.kinds import POD, PYTORCH_JOB, RLJOB, Key, Kind
from rl_operator.kube.names import JOB_LABEL

KEY, OTHER = Key("RLJob", "ns", "job"), Key("RLJob", "ns", "other")


class Server:
    """Counts what it is asked; its objects are numbered by how often they were read."""

    def __init__(self) -> None:
        self.asked = 0
        self.meanwhile: Callable[[], None] = lambda: None
        self.missing: set[str] = set()

    def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
        self.asked += 1
        self.meanwhile()
        meta = {"namespace": namespace, "name": name, "uid": f"{kind.name}.{name}"}
        version = {"resourceVersion": str(self.asked), "labels": {JOB_LABEL: "job"}}
        return {"kind": kind.name, "apiVersion": kind.api_version, "metadata": meta | version}

    def select(self, kind: Kind, namespace: str, *, labels: str) -> list[dict[str, Any]]:
        if kind.name in self.missing:
            raise ApiMissingError(doing="GET", status=404, message="no such kind")
        return [self.get(kind, namespace, "child")]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def look(reads: Reads) -> tuple[Any, Any]:
    return reads.get(RLJOB, "ns", "job"), reads.select(POD, "ns", labels=f"{JOB_LABEL}=job")


def is_cached(reader: CachedReader, key: Key) -> bool:
    """Whether a read asks the API server nothing."""
    server = reader._cluster
    assert isinstance(server, Server)
    asked = server.asked
    reader.observe(key, look)
    return server.asked == asked


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reader(server: Server, clock: Clock) -> CachedReader:
    return CachedReader(server, clock=clock, seconds=120.0)


def test_cache_is_trusted_until_the_interval_is_over(
    reader: CachedReader, server: Server, clock: Clock
) -> None:
    first = reader.observe(KEY, look)
    clock.now = 119.0
    assert reader.observe(KEY, look) == first
    assert server.asked == 2
    clock.now = 120.0
    assert reader.observe(KEY, look) != first
    assert server.asked == 4


def test_live_reads_of_objects_created_at_once_are_spread(server: Server, clock: Clock) -> None:
    reader = CachedReader(server, clock=clock, seconds=120.0, jitter=lambda: 0.5)
    reader.created(OTHER)
    assert is_cached(reader, OTHER)
    clock.now += 89.0
    assert is_cached(reader, OTHER)
    clock.now += 1.0
    assert not is_cached(reader, OTHER)


def test_distrusted_object_is_read_live(reader: CachedReader, server: Server) -> None:
    reader.observe(KEY, look)
    reader.distrust(OTHER)
    assert is_cached(reader, KEY)
    reader.distrust(KEY)
    assert not is_cached(reader, KEY)
    assert server.asked == 4


def test_doubt_during_a_live_read_is_not_lost(reader: CachedReader, server: Server) -> None:
    server.meanwhile = lambda: reader.distrust(KEY)
    reader.observe(KEY, look)
    server.meanwhile = lambda: None
    assert not is_cached(reader, KEY)
    assert is_cached(reader, KEY)


def test_read_without_a_kind_is_not_trusted(reader: CachedReader, server: Server) -> None:
    server.missing = {PYTORCH_JOB.name}

    def without(reads: Reads) -> bool:
        reads.get(RLJOB, "ns", "job")
        try:
            reads.select(PYTORCH_JOB, "ns", labels=f"{JOB_LABEL}=job")
        except ApiMissingError:
            return False
        return True

    assert not reader.observe(KEY, without)
    server.missing = set()
    asked = server.asked
    assert reader.observe(KEY, without)
    assert server.asked == asked + 2


def test_created_object_is_read_from_the_cache(reader: CachedReader, server: Server) -> None:
    reader.created(KEY)
    assert is_cached(reader, KEY)
    assert server.asked == 0
    reader.distrust(KEY)  # as after a conflict
    assert not is_cached(reader, KEY)


def test_created_object_that_waits_is_read_from_the_cache(
    reader: CachedReader, server: Server, clock: Clock
) -> None:
    reader.created(KEY)
    clock.now += 1000.0
    assert is_cached(reader, KEY)
    clock.now += 119.0
    assert is_cached(reader, KEY)
    assert server.asked == 0
    clock.now += 1.0
    assert not is_cached(reader, KEY)
    reader.created(OTHER)
    reader.distrust(OTHER)  # somebody has told that what is known may be wrong
    assert not is_cached(reader, OTHER)


def test_object_created_before_the_watches_began_is_read_live(server: Server, clock: Clock) -> None:
    reader = CachedReader(server, clock=clock, seconds=120.0, is_fed=lambda: False)
    reader.created(KEY)
    assert not is_cached(reader, KEY)


def test_failed_reconcile_is_followed_by_a_live_read(reader: CachedReader) -> None:
    def fail(key: Key) -> float | None:
        reader.observe(key, look)
        raise ApiConflictError(doing="PATCH", status=409, message="changed meanwhile")

    with pytest.raises(ApiConflictError):
        reader.guarded(fail)(KEY)
    assert not is_cached(reader, KEY)


def test_listed_object_is_read_from_the_cache_once_all_watches_have_begun(
    server: Server, clock: Clock
) -> None:
    begun: list[None] = []
    store = ObjectCache()
    reader = CachedReader(
        server, clock=clock, seconds=120.0, store=store, is_fed=lambda: bool(begun)
    )
    for key in (KEY, OTHER):
        store.put(RLJOB, server.get(RLJOB, key.namespace, key.name))
        reader.listed(key)
    asked = server.asked
    assert not is_cached(reader, KEY)  # the lists of other kinds may not be in
    assert server.asked > asked
    begun.append(None)
    asked = server.asked
    assert is_cached(reader, OTHER)
    assert server.asked == asked
    reader.distrust(OTHER)
    assert not is_cached(reader, OTHER)
    reader.distrust(OTHER)
    reader.listed(OTHER)  # a list that came later says nothing of the other kinds
    assert not is_cached(reader, OTHER)


def test_live_reads_of_thousands_are_no_more_than_of_hundreds(server: Server, clock: Clock) -> None:
    reader = CachedReader(server, clock=clock, seconds=300.0)
    for number in range(3 * KEPT_IN_PACE + 1):
        reader.created(Key("RLJob", "ns", f"job-{number}"))
        reader.observe(Key("RLJob", "ns", f"job-{number}"), look)
    last = Key("RLJob", "ns", f"job-{3 * KEPT_IN_PACE}")
    clock.now = 899.0
    assert is_cached(reader, last)
    assert not is_cached(reader, Key("RLJob", "ns", "job-0"))  # made while there were few
    clock.now = 900.0
    assert not is_cached(reader, last)


def test_without_an_interval_every_read_is_live(server: Server, clock: Clock) -> None:
    reader = CachedReader(server, clock=clock, seconds=0.0)
    for key in (KEY, OTHER, KEY, OTHER):
        assert not is_cached(reader, key)


def test_read_that_must_be_live_is_repeated_live(reader: CachedReader, server: Server) -> None:
    reader.created(KEY)
    observed: list[Any] = []

    def must_be_live(snapshot: Any) -> bool:
        observed.append(snapshot)
        return True

    snapshot = reader.observe(KEY, look, must_be_live=must_be_live)
    assert (server.asked, len(observed)) == (2, 1)
    assert snapshot != observed[0]
    assert is_cached(reader, KEY), "a live read is trusted"


def test_live_read_is_not_repeated(reader: CachedReader, server: Server) -> None:
    reader.observe(KEY, look, must_be_live=lambda snapshot: True)
    assert server.asked == 2
