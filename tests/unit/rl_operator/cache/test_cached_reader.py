"""A look is used again exactly as long as nothing is known to have happened since it began."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rl_operator.cache.cached_reader import KEPT_IN_PACE, Looks, Reads
from rl_operator.cache.object_cache import Store
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


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def looks(server: Server, clock: Clock) -> Looks:
    return Looks(server, clock=clock, seconds=120.0)


def test_answers_are_used_again_until_their_time_is_over(
    looks: Looks, server: Server, clock: Clock
) -> None:
    first = looks.observe(KEY, look)
    clock.now = 119.0
    assert looks.observe(KEY, look) == (first[0], True)
    assert server.asked == 2
    clock.now = 120.0
    found, again = looks.observe(KEY, look)
    assert (found != first[0], again, server.asked) == (True, False, 4)


def test_live_looks_at_what_was_made_at_once_are_spread(server: Server, clock: Clock) -> None:
    looks = Looks(server, clock=clock, seconds=120.0, jitter=lambda: 0.5)
    looks.born(OTHER)
    assert looks.observe(OTHER, look)[1]
    clock.now += 89.0
    assert looks.observe(OTHER, look)[1]
    clock.now += 1.0
    assert not looks.observe(OTHER, look)[1]


def test_a_change_is_looked_at(looks: Looks, server: Server) -> None:
    looks.observe(KEY, look)
    looks.changed(OTHER)
    assert looks.observe(KEY, look)[1]
    looks.changed(KEY)
    assert not looks.observe(KEY, look)[1]
    assert server.asked == 4


def test_a_change_during_a_look_is_not_lost(looks: Looks, server: Server) -> None:
    server.meanwhile = lambda: looks.changed(KEY)
    looks.observe(KEY, look)
    server.meanwhile = lambda: None
    assert not looks.observe(KEY, look)[1]
    assert looks.observe(KEY, look)[1]


def test_a_look_without_a_kind_is_not_kept(looks: Looks, server: Server) -> None:
    server.missing = {PYTORCH_JOB.name}

    def without(reads: Reads) -> bool:
        reads.get(RLJOB, "ns", "job")
        try:
            reads.select(PYTORCH_JOB, "ns", labels=f"{JOB_LABEL}=job")
        except ApiMissingError:
            return False
        return True

    assert looks.observe(KEY, without) == (False, False)
    server.missing = set()
    assert looks.observe(KEY, without) == (True, False)


def test_what_was_just_made_is_known_from_the_watches(looks: Looks, server: Server) -> None:
    looks.born(KEY)
    assert looks.observe(KEY, look)[1]
    assert server.asked == 0
    looks.changed(KEY)  # as after a conflict
    assert not looks.observe(KEY, look)[1]


def test_what_nobody_has_looked_at_is_known_however_long_it_waits(
    looks: Looks, server: Server, clock: Clock
) -> None:
    looks.born(KEY)
    clock.now += 1000.0
    assert looks.observe(KEY, look)[1]
    clock.now += 119.0
    assert looks.observe(KEY, look)[1]
    assert server.asked == 0
    clock.now += 1.0
    assert not looks.observe(KEY, look)[1]
    looks.born(OTHER)
    looks.changed(OTHER)  # somebody has told that what is known may be wrong
    assert not looks.observe(OTHER, look)[1]


def test_what_was_made_before_the_watches_began_is_read(server: Server, clock: Clock) -> None:
    looks = Looks(server, clock=clock, seconds=120.0, fed=lambda: False)
    looks.born(KEY)
    assert not looks.observe(KEY, look)[1]


def test_after_a_failure_it_looks_anew(looks: Looks) -> None:
    def fail(key: Key) -> float | None:
        looks.observe(key, look)
        raise ApiConflictError(doing="PATCH", status=409, message="changed meanwhile")

    with pytest.raises(ApiConflictError):
        looks.guarded(fail)(KEY)
    assert not looks.observe(KEY, look)[1]


def test_what_was_listed_is_known_once_all_watches_have_begun(server: Server, clock: Clock) -> None:
    begun: list[None] = []
    store = Store()
    looks = Looks(server, clock=clock, seconds=120.0, store=store, fed=lambda: bool(begun))
    for key in (KEY, OTHER):
        store.put(RLJOB, server.get(RLJOB, key.namespace, key.name))
        looks.listed(key)
    asked = server.asked
    assert not looks.observe(KEY, look)[1]  # the lists of other kinds may not be in
    assert server.asked > asked
    begun.append(None)
    asked = server.asked
    assert looks.observe(OTHER, look)[1]
    assert server.asked == asked
    looks.changed(OTHER)
    assert not looks.observe(OTHER, look)[1]
    looks.changed(OTHER)
    looks.listed(OTHER)  # a list that came later says nothing of the other kinds
    assert not looks.observe(OTHER, look)[1]


def test_live_looks_at_thousands_are_no_more_than_at_hundreds(server: Server, clock: Clock) -> None:
    looks = Looks(server, clock=clock, seconds=300.0)
    for number in range(3 * KEPT_IN_PACE + 1):
        looks.born(Key("RLJob", "ns", f"job-{number}"))
        looks.observe(Key("RLJob", "ns", f"job-{number}"), look)
    last = Key("RLJob", "ns", f"job-{3 * KEPT_IN_PACE}")
    clock.now = 899.0
    assert looks.observe(last, look)[1]
    assert not looks.observe(Key("RLJob", "ns", "job-0"), look)[1]  # made while there were few
    clock.now = 900.0
    assert not looks.observe(last, look)[1]


OF_OTHER = {JOB_LABEL: "other"}


def told(store: Store, name: str, version: int, **labels: str) -> None:
    meta: dict[str, Any] = {"namespace": "ns", "name": name, "uid": name}
    meta |= {"resourceVersion": str(version), "labels": labels or {JOB_LABEL: "job"}}
    kind = RLJOB if name == "job" else POD
    store.put(kind, {"kind": kind.name, "apiVersion": kind.api_version, "metadata": meta})


CHANGES: dict[str, tuple[Callable[[Store, Looks, Clock], object], bool]] = {
    "nothing": (lambda store, looks, clock: None, True),
    "another job's pod": (lambda store, looks, clock: told(store, "z", 9, **OF_OTHER), True),
    "the object": (lambda store, looks, clock: told(store, "job", 9), False),
    "one that was selected": (lambda store, looks, clock: told(store, "a", 9), False),
    "one more": (lambda store, looks, clock: told(store, "b", 9), False),
    "one has gone": (lambda store, looks, clock: store.end(POD, "ns", "a", uid="a"), False),
    "one has lost its label": (lambda store, looks, clock: told(store, "a", 9, **OF_OTHER), False),
    "a doubt": (lambda store, looks, clock: looks.changed(KEY), False),
    "it is over": (lambda store, looks, clock: looks.forget(KEY), False),
    "its time has come to be looked at live": (
        lambda store, looks, clock: setattr(clock, "now", 120.0),
        False,
    ),
}


@pytest.mark.parametrize(("change", "same"), CHANGES.values(), ids=CHANGES.keys())
def test_a_look_sees_the_same_until_anything_that_it_reads_changes(
    change: Callable[[Store, Looks, Clock], object], same: bool, server: Server, clock: Clock
) -> None:
    store = Store()
    looks = Looks(server, clock=clock, seconds=120.0, store=store)
    told(store, "job", 1)
    told(store, "a", 2)
    looks.born(KEY)
    assert not looks.same(KEY)  # nobody has looked yet
    assert looks.observe(KEY, look)[1]
    change(store, looks, clock)
    assert looks.same(KEY) is same


def test_what_changes_while_it_is_read_is_not_the_same(server: Server, clock: Clock) -> None:
    store = Store()
    looks = Looks(server, clock=clock, seconds=120.0, store=store)
    told(store, "job", 1)
    looks.born(KEY)

    def meanwhile(reads: Reads) -> object:
        found = look(reads)
        told(store, "a", 2)
        return found

    assert looks.observe(KEY, meanwhile)[1]
    assert not looks.same(KEY)


def test_a_live_look_is_not_the_store_s(looks: Looks) -> None:
    looks.observe(KEY, look)
    assert not looks.same(KEY)


def test_who_is_to_look_live_always_does(server: Server, clock: Clock) -> None:
    looks = Looks(server, clock=clock, seconds=0.0)
    for key in (KEY, OTHER, KEY, OTHER):
        assert not looks.observe(key, look)[1]
