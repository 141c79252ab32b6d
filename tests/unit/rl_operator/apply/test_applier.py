"""What is not there is made without asking first, and what others have is never written to."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from rl_operator.apply.applier import Applier
from rl_operator.kube.api_errors import ApiConflictError, ApiUnavailableError
from rl_operator.kube.api_requests import Manifest
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.kinds import Key, Kind
from rl_operator.kube.metadata import Child, Meta
from rl_operator.kube.plan import Wanted
from rl_operator.render.metadata import stamped

KEY = Key("RLJob", "ns", "job")
OWNER = {"uid": "owner", "controller": True}


def a_manifest(kind: str, name: str, *, a: int = 1) -> Manifest:
    metadata = {"namespace": "ns", "name": name, "ownerReferences": [OWNER]}
    return stamped({"kind": kind, "apiVersion": "v1", "metadata": metadata, "spec": {"a": a}})


CONFIG, POOL = a_manifest("ConfigMap", "job-spec"), a_manifest("SamplerPool", "job-main")
POLICY = a_manifest("NetworkPolicy", "job")


class Server(Cluster):
    """Holds objects by kind and name, and writes down what it is asked."""

    def __init__(self, *there: Manifest) -> None:
        self.asked: list[str] = []
        self.loses_answers = False
        self.objects: dict[tuple[str, str], Manifest] = {}
        for one in there:
            self._put(one)

    def _put(self, manifest: Manifest) -> Manifest:
        stored = copy.deepcopy(manifest)
        stamp = {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "5"}
        stored["metadata"] |= stamp
        self.objects[stored["kind"], stored["metadata"]["name"]] = stored
        return stored

    def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        self.asked.append(f"get {kind.name}")
        return self.objects.get((kind.name, name))

    def create(self, kind: Kind, manifest: Manifest, *, manager: str = "") -> Manifest:
        self.asked.append(f"create {kind.name}")
        if (kind.name, manifest["metadata"]["name"]) in self.objects:
            raise ApiConflictError(doing="POST", status=409, message="it is there")
        return self._put(manifest)

    def apply(
        self, kind: Kind, manifest: Manifest, *, manager: str, subresource: str = ""
    ) -> Manifest:
        self.asked.append(f"apply {kind.name}")
        version = manifest["metadata"].get("resourceVersion")
        there = self.objects.get((kind.name, manifest["metadata"]["name"]))
        if there is not None and version not in (None, there["metadata"]["resourceVersion"]):
            raise ApiConflictError(doing="PATCH", status=409, message="another version")
        return self._put(manifest)

    def delete(self, kind: Kind, namespace: str, name: str, *, uid: str) -> None:
        self.asked.append(f"delete {kind.name}")
        del self.objects[kind.name, name]
        if self.loses_answers:
            raise ApiUnavailableError(doing="DELETE", status=0, message="no answer")


def children(server: Server, *kinds: str) -> dict[tuple[str, str], Child]:
    found = {place: raw for place, raw in server.objects.items() if place[0] in kinds}
    return {
        place: Child(kind=place[0], meta=Meta.parse(raw), raw=raw) for place, raw in found.items()
    }


def make(applier: Applier, server: Server, *seen: str, new: bool = True) -> str:
    """Both objects, with what watches have told of; the reason of a stall, if there is one."""
    made = applier.make(
        KEY,
        wanted=[Wanted(manifest=CONFIG), Wanted(manifest=POOL)],
        unwanted=[],
        observed=children(server, *seen),
        owner_uid="owner",
        new=new,
    )
    return made.stall.reason if made.stall is not None else ""


FOREIGN: Manifest = {
    "kind": "SamplerPool",
    "apiVersion": "v1",
    "spec": {},
    "metadata": {"namespace": "ns", "name": "job-main"},
}
FIRST: dict[str, tuple[list[Manifest], bool, list[str], str]] = {
    "new": ([], True, ["create ConfigMap", "create SamplerPool"], ""),
    "made by a process that has died": (
        [CONFIG],
        False,
        ["get ConfigMap", "create SamplerPool"],
        "",
    ),
    "made by another leader of which no watch has told yet": (
        [CONFIG, POOL],
        True,
        ["create ConfigMap", "get ConfigMap", "get SamplerPool"],
        "",
    ),
    "the name is somebody else's": (
        [FOREIGN],
        True,
        ["create ConfigMap", "create SamplerPool", "get ConfigMap", "get SamplerPool"],
        "NameTaken",
    ),
}


@pytest.mark.parametrize(("there", "new", "asked", "stall"), FIRST.values(), ids=FIRST.keys())
def test_the_first_look(there: list[Manifest], new: bool, asked: list[str], stall: str) -> None:
    server = Server(*there)
    before = copy.deepcopy(server.objects)
    assert make(Applier(server), server, new=new) == stall
    assert server.asked == asked
    assert {place: server.objects[place] for place in before} == before


def test_what_is_not_watched_is_asked_for_once_there_may_be_some() -> None:
    server = Server(CONFIG, POOL)
    assert make(Applier(server), server, "SamplerPool", new=False) == ""
    assert server.asked == ["get ConfigMap"]


def test_who_has_met_something_asks_from_then_on() -> None:
    server = Server(FOREIGN)
    applier = Applier(server)
    make(applier, server)
    server.asked.clear()
    assert make(applier, server) == "NameTaken"
    assert server.asked == ["get ConfigMap", "get SamplerPool"]
    applier.forget(KEY)
    server.asked.clear()
    make(applier, server, new=False)
    assert server.asked[0] == "get ConfigMap"


def test_what_was_seen_is_asked_for_though_nothing_else_is_there() -> None:
    now = [0.0]
    clock: Callable[[], float] = lambda: now[0]  # noqa: E731 - one line tells it
    server = Server()
    applier = Applier(server, clock=clock, trust_seconds=120.0)
    make(applier, server)
    server.asked.clear()
    del server.objects["SamplerPool", "job-main"]
    now[0] = 121.0
    make(applier, server)
    assert server.asked == ["get ConfigMap", "create SamplerPool"]


def look_at_policy(applier: Applier, server: Server, wanted: Manifest | None) -> list[str]:
    """One look at an object that is not watched, and is unwanted where it is not wanted."""
    server.asked.clear()
    applier.make(
        KEY,
        wanted=[] if wanted is None else [Wanted(manifest=wanted)],
        unwanted=list(children(server, "NetworkPolicy").values()) if wanted is None else [],
        observed={},
        owner_uid="owner",
    )
    return [one for one in server.asked if not one.startswith("get")]


@pytest.mark.parametrize(
    ("between", "written"),
    [
        (None, "create NetworkPolicy"),
        (a_manifest("NetworkPolicy", "job", a=2), "apply NetworkPolicy"),
    ],
    ids=["gone", "another"],
)
def test_what_is_set_back_is_made_at_the_next_look(between: Manifest | None, written: str) -> None:
    server = Server()
    applier = Applier(server, clock=lambda: 0.0, trust_seconds=120.0)
    assert look_at_policy(applier, server, POLICY) == ["create NetworkPolicy"]
    assert look_at_policy(applier, server, POLICY) == []
    assert len(look_at_policy(applier, server, between)) == 1
    assert look_at_policy(applier, server, POLICY) == [written]
    assert server.objects["NetworkPolicy", "job"]["spec"] == {"a": 1}


def test_what_may_have_been_deleted_is_not_taken_for_there() -> None:
    server = Server()
    applier = Applier(server, clock=lambda: 0.0, trust_seconds=120.0)
    look_at_policy(applier, server, POLICY)
    server.loses_answers = True
    with pytest.raises(ApiUnavailableError):
        look_at_policy(applier, server, None)
    assert look_at_policy(applier, server, POLICY) == ["create NetworkPolicy"]


TAKEN_OVER: dict[str, tuple[bool, bool, list[str]]] = {
    "all was made": (True, True, []),
    "its status says nothing": (False, True, ["get ConfigMap"]),
    "a watch tells of another one": (
        True,
        False,
        ["get ConfigMap", "get SamplerPool", "apply SamplerPool"],
    ),
}


@pytest.mark.parametrize(("settled", "same", "asked"), TAKEN_OVER.values(), ids=TAKEN_OVER.keys())
def test_what_a_former_process_left_is_read_by_and_by(
    settled: bool, same: bool, asked: list[str]
) -> None:
    now, server = [1000.0], Server(CONFIG, POOL)
    if not same:
        server.objects["SamplerPool", "job-main"]["spec"] = {"a": 2}
    applier = Applier(server, clock=lambda: now[0], trust_seconds=120.0, jitter=lambda: 0.25)

    def look() -> list[str]:
        server.asked.clear()
        applier.make(
            KEY,
            wanted=[Wanted(manifest=CONFIG), Wanted(manifest=POOL)],
            unwanted=[],
            observed=children(server, "SamplerPool"),
            owner_uid="owner",
            settled=settled,
        )
        applier.rested(KEY, ("all",))
        return server.asked.copy()

    assert look() == asked
    now[0] += 89.0
    assert look() == []
    assert applier.rests(KEY, ("all",))
    now[0] += 1.0  # a quarter of the time had passed for it
    taken_over = settled and same
    assert applier.rests(KEY, ("all",)) is not taken_over
    del server.objects["ConfigMap", "job-spec"]
    assert look() == (["get ConfigMap", "create ConfigMap"] if taken_over else [])
    assert applier.rest_seconds(KEY) == (120.0 if taken_over else 30.0)


def test_a_change_is_made_to_what_was_seen_alone() -> None:
    changed = copy.deepcopy(POOL)
    changed["spec"] = {"a": 2}
    server = Server(CONFIG, changed)
    seen = children(server, "SamplerPool")
    server.objects["SamplerPool", "job-main"]["metadata"]["resourceVersion"] = "6"
    with pytest.raises(ApiConflictError):
        Applier(server).make(
            KEY,
            wanted=[Wanted(manifest=POOL)],
            unwanted=[],
            observed={
                place: Child(kind=one.kind, meta=one.meta, raw={**one.raw, "spec": {"a": 2}})
                for place, one in seen.items()
            },
            owner_uid="owner",
        )
    assert server.objects["SamplerPool", "job-main"]["spec"] == {"a": 2}
