"""Absent objects are created, objects of others are left alone, and reads are not repeated."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from rl_operator.apply.applier import Applier
from rl_operator.kube.api_errors import (
    ApiConflictError,
    ApiHookError,
    ApiRefusedError,
    ApiUnavailableError,
    ClusterError,
)
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

    def __init__(self, *manifests: Manifest) -> None:
        self.asked: list[str] = []
        self.loses_answers = False
        self.managers: list[str] = []
        self.objects: dict[tuple[str, str], Manifest] = {}
        for manifest in manifests:
            self._put(manifest)

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
        self.managers.append(manager)
        if (kind.name, manifest["metadata"]["name"]) in self.objects:
            raise ApiConflictError(doing="POST", status=409, message="it is there")
        return self._put(manifest)

    def apply(
        self, kind: Kind, manifest: Manifest, *, manager: str, subresource: str = ""
    ) -> Manifest:
        self.asked.append(f"apply {kind.name}")
        self.managers.append(manager)
        version = manifest["metadata"].get("resourceVersion")
        stored = self.objects.get((kind.name, manifest["metadata"]["name"]))
        if stored is not None and version not in (None, stored["metadata"]["resourceVersion"]):
            raise ApiConflictError(doing="PATCH", status=409, message="another version")
        return self._put(manifest)

    def delete(self, kind: Kind, namespace: str, name: str, *, uid: str) -> None:
        self.asked.append(f"delete {kind.name}")
        del self.objects[kind.name, name]
        if self.loses_answers:
            raise ApiUnavailableError(doing="DELETE", status=0, message="no answer")


def children(server: Server, *kinds: str) -> dict[tuple[str, str], Child]:
    observed = {place: raw for place, raw in server.objects.items() if place[0] in kinds}
    return {
        place: Child(kind=place[0], meta=Meta.parse(raw), raw=raw)
        for place, raw in observed.items()
    }


def make(applier: Applier, server: Server, *seen: str) -> str:
    """Make both objects, given what watches have shown; the reason of a stall, if there is one."""
    made = applier.make(
        KEY,
        wanted=[Wanted(manifest=CONFIG, immutable=True), Wanted(manifest=POOL)],
        unwanted=[],
        observed=children(server, *seen),
        owner_uid="owner",
    )
    return made.stall.reason if made.stall is not None else ""


FOREIGN: Manifest = {
    "kind": "SamplerPool",
    "apiVersion": "v1",
    "spec": {},
    "metadata": {"namespace": "ns", "name": "job-main"},
}
CREATE = ["create ConfigMap", "create SamplerPool"]
READ = ["get ConfigMap", "get SamplerPool"]
EXISTING: dict[str, tuple[list[Manifest], list[str], str]] = {
    "a process that has died made some": (
        [CONFIG],
        ["create ConfigMap", *READ, "create SamplerPool"],
        "",
    ),
    "another leader made all, and no watch has shown it": (
        [CONFIG, POOL],
        ["create ConfigMap", *READ],
        "",
    ),
    "another owner has the name": ([FOREIGN], [*CREATE, *READ], "NameTaken"),
}


def test_new_objects_are_created_without_a_read() -> None:
    server = Server()
    assert make(Applier(server), server) == ""
    assert server.asked == CREATE


@pytest.mark.parametrize(("existing", "asked", "stall"), EXISTING.values(), ids=EXISTING.keys())
def test_what_exists_and_no_watch_has_shown_is_read_after_the_conflict(
    existing: list[Manifest], asked: list[str], stall: str
) -> None:
    server = Server(*existing)
    before = copy.deepcopy(server.objects)
    applier = Applier(server, clock=lambda: 0.0, trust_seconds=120.0)
    with pytest.raises(ApiConflictError):
        make(applier, server)
    assert make(applier, server) == stall
    assert server.asked == asked
    assert {place: server.objects[place] for place in before} == before


def test_a_name_that_stays_taken_is_read_each_time_and_never_written() -> None:
    server = Server(CONFIG, FOREIGN)
    applier = Applier(server, clock=lambda: 0.0, trust_seconds=120.0)
    with pytest.raises(ApiConflictError):
        make(applier, server)
    server.asked.clear()
    assert [make(applier, server) for _ in range(2)] == ["NameTaken"] * 2
    assert {request.partition(" ")[0] for request in server.asked} == {"get"}


def test_a_conflict_with_an_object_that_was_just_created_is_raised() -> None:
    class Late(Server):
        def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
            return None

    server = Late(CONFIG)
    with pytest.raises(ApiConflictError):
        make(Applier(server), server)
    assert server.objects["ConfigMap", "job-spec"]["spec"] == {"a": 1}


def test_only_the_creation_of_a_pool_names_its_replicas() -> None:
    server, pool = Server(), a_manifest("SamplerPool", "job-main")
    wanted = Wanted(manifest=pool, initial_spec={"replicas": 3})
    Applier(server).make(KEY, wanted=[wanted], unwanted=[], observed={}, owner_uid="owner")
    assert server.asked == ["create SamplerPool"]
    assert server.objects["SamplerPool", "job-main"]["spec"] == {"a": 1, "replicas": 3}


def test_only_objects_of_unwatched_kinds_are_read_again_once_the_time_is_up() -> None:
    now = [0.0]
    clock: Callable[[], float] = lambda: now[0]  # noqa: E731 - one line tells it
    server = Server()
    applier = Applier(server, clock=clock, trust_seconds=120.0)
    make(applier, server)
    server.asked.clear()
    now[0] = 119.0
    make(applier, server, "SamplerPool")
    assert server.asked == []
    now[0] = 121.0
    make(applier, server, "SamplerPool")
    assert server.asked == ["get ConfigMap"]


def test_a_watched_object_that_is_gone_is_created_again() -> None:
    server = Server()
    applier = Applier(server, clock=lambda: 0.0, trust_seconds=120.0)
    make(applier, server)
    server.asked.clear()
    del server.objects["SamplerPool", "job-main"]
    make(applier, server)
    assert server.asked == ["create SamplerPool"]


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
    return [request for request in server.asked if not request.startswith("get")]


@pytest.mark.parametrize(
    ("between", "written"),
    [
        (None, "create NetworkPolicy"),
        (a_manifest("NetworkPolicy", "job", a=2), "apply NetworkPolicy"),
    ],
    ids=["gone", "another"],
)
def test_an_object_that_is_wanted_again_is_made_by_the_next_reconcile(
    between: Manifest | None, written: str
) -> None:
    server = Server()
    applier = Applier(server, clock=lambda: 0.0, trust_seconds=120.0)
    assert look_at_policy(applier, server, POLICY) == ["create NetworkPolicy"]
    assert look_at_policy(applier, server, POLICY) == []
    assert len(look_at_policy(applier, server, between)) == 1
    assert look_at_policy(applier, server, POLICY) == [written]
    assert server.objects["NetworkPolicy", "job"]["spec"] == {"a": 1}


def test_an_object_whose_deletion_got_no_answer_is_read_again() -> None:
    server = Server()
    applier = Applier(server, clock=lambda: 0.0, trust_seconds=120.0)
    look_at_policy(applier, server, POLICY)
    server.loses_answers = True
    with pytest.raises(ApiUnavailableError):
        look_at_policy(applier, server, None)
    assert look_at_policy(applier, server, POLICY) == ["create NetworkPolicy"]


TAKEN_OVER: dict[str, tuple[bool, bool, list[str]]] = {
    "everything was made": (True, True, []),
    "its status says nothing": (False, True, ["get ConfigMap"]),
    "a watched object differs": (True, False, ["get SamplerPool", "apply SamplerPool"]),
}


@pytest.mark.parametrize(("settled", "same", "asked"), TAKEN_OVER.values(), ids=TAKEN_OVER.keys())
def test_a_new_process_trusts_unwatched_objects_of_a_settled_owner_for_a_while(
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
    now[0] += 104.0
    assert look() == []
    assert applier.rests(KEY, ("all",))
    assert not applier.rests(KEY, ("other inputs",))
    now[0] += 1.0  # the jitter took an eighth of the time away
    assert not applier.rests(KEY, ("all",))
    del server.objects["ConfigMap", "job-spec"]
    assert look() == ["get ConfigMap", "create ConfigMap"]
    assert applier.rest_seconds(KEY) == 105.0
    applier.forget(KEY)
    assert applier.rest_seconds(KEY) == 0.0


def test_a_change_is_applied_only_to_the_version_that_was_seen() -> None:
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
                place: Child(kind=child.kind, meta=child.meta, raw={**child.raw, "spec": {"a": 2}})
                for place, child in seen.items()
            },
            owner_uid="owner",
        )
    assert server.objects["SamplerPool", "job-main"]["spec"] == {"a": 2}


class Refusing(Server):
    """Fails with an error for requests that begin with any of some texts."""

    def __init__(self, *manifests: Manifest, error: type[ClusterError], fails: list[str]) -> None:
        super().__init__(*manifests)
        self.error, self.fails = error, fails

    def _try(self, request: str) -> None:
        if any(request.startswith(text) for text in self.fails):
            self.asked.append(f"failed {request}")
            doing = "POST /api/v1/namespaces/ns/configmaps/job-spec"
            raise self.error(doing=doing, status=403, message="no")

    def create(self, kind: Kind, manifest: Manifest, *, manager: str = "") -> Manifest:
        self._try(f"create {kind.name}")
        return super().create(kind, manifest, manager=manager)

    def apply(
        self, kind: Kind, manifest: Manifest, *, manager: str, subresource: str = ""
    ) -> Manifest:
        self._try(f"apply {kind.name}")
        return super().apply(kind, manifest, manager=manager, subresource=subresource)

    def delete(self, kind: Kind, namespace: str, name: str, *, uid: str) -> None:
        self._try(f"delete {kind.name}")
        super().delete(kind, namespace, name, uid=uid)


TRAINER, STRAY = a_manifest("PyTorchJob", "job-1"), a_manifest("NetworkPolicy", "stray")
ADMITTED, HELD = POOL | {"spec": {"admitted": 2}}, POOL | {"spec": {"admitted": 0}}
STOPPED = ["delete PyTorchJob", "apply SamplerPool"]
FAILING: dict[str, tuple[list[str], list[str]]] = {
    "a creation": (["create ConfigMap"], [*STOPPED, "failed create ConfigMap"]),
    "a pool's change": (
        ["apply SamplerPool"],
        ["delete PyTorchJob", "failed apply SamplerPool"],
    ),
    "a deletion": (
        ["delete"],
        [
            "failed delete PyTorchJob",
            "apply SamplerPool",
            "create ConfigMap",
            "failed delete NetworkPolicy",
        ],
    ),
}


@pytest.mark.parametrize("error", [ApiRefusedError, ApiHookError])
@pytest.mark.parametrize(("fails", "asked"), FAILING.values(), ids=FAILING.keys())
def test_what_fails_keeps_no_pods_from_being_stopped(
    fails: list[str], asked: list[str], error: type[ClusterError]
) -> None:
    server = Refusing(TRAINER, ADMITTED, STRAY, error=error, fails=fails)
    seen = children(server, "PyTorchJob", "SamplerPool", "NetworkPolicy")
    made = Applier(server).make(
        KEY,
        wanted=[Wanted(manifest=CONFIG), Wanted(manifest=HELD)],
        unwanted=[seen["PyTorchJob", "job-1"], seen["NetworkPolicy", "stray"]],
        observed=seen,
        owner_uid="owner",
    )
    assert [each for each in server.asked if not each.startswith("get")] == asked
    done = [" ".join(str(action).split()[:2]) for action in made.done]
    assert done == [each for each in asked if not each.startswith("failed")]
    if error is ApiHookError:
        assert made.blocked_reason.startswith("configmaps/job-spec cannot be written for now")
    else:
        first = next(each for each in asked if each.startswith("failed"))
        refused = f"The API server refused to {first.removeprefix('failed ')}"
        assert made.hindrance.startswith(refused)


def test_silent_webhook_is_asked_once_for_each_verb_and_kind() -> None:
    trainers = [a_manifest("PyTorchJob", f"job-{attempt}") for attempt in (1, 2, 3)]
    pools = [a_manifest("SamplerPool", f"job-{group}", a=2) for group in ("a", "b")]
    server = Refusing(*trainers, *pools, error=ApiHookError, fails=["delete PyTorchJob", "apply"])
    seen = children(server, "PyTorchJob", "SamplerPool")
    made = Applier(server).make(
        KEY,
        wanted=[Wanted(manifest=each | {"spec": {"a": 1, "admitted": 0}}) for each in pools],
        unwanted=[child for (kind, _), child in seen.items() if kind == "PyTorchJob"],
        observed=seen,
        owner_uid="owner",
    )
    assert made.outage is not None
    assert [each for each in server.asked if not each.startswith("get")] == [
        "failed delete PyTorchJob",
        "failed apply SamplerPool",
    ]
