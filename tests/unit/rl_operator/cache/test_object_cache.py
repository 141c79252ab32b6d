"""The store ends up with what the API server holds, however late and often it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rl_operator.cache.cached_reader import CachedReader, Reads
from rl_operator.cache.object_cache import KEPT_ENDS, ObjectCache
from rl_operator.kube.kinds import DEPLOYMENT, POD, PYTORCH_JOB, RLJOB, SAMPLER_POOL, Key, Kind
from rl_operator.kube.names import JOB_LABEL, POOL_LABEL, PROGRAMS_LABEL, RUN_LABEL
from rl_operator.state import parsed_pods
from rl_operator.watch.informer import Informer

NAMES = ("a", "b")
KEY = Key("RLJob", "n", "j")
SELECTOR = f"{RUN_LABEL}=r,{JOB_LABEL}=j"
Raw = dict[str, Any]


def a_pod(name: str, *, uid: str = "u", version: int = 1, **status: Any) -> Raw:
    labels = {JOB_LABEL: "j", POOL_LABEL: "p", RUN_LABEL: "r"}
    meta = {"namespace": "n", "name": name, "uid": uid, "resourceVersion": str(version)}
    meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**meta, "labels": labels},
        "spec": {"nodeName": "x"},
        "status": status,
    }


def test_what_is_read_is_a_copy_of_what_matters() -> None:
    store, pod = ObjectCache(), a_pod("a", phase="Running")
    pod["metadata"]["managedFields"] = [{"manager": "kubelet"}]
    assert store.put(POD, pod)
    manifest = store.get(POD, "n", "a")
    assert manifest is not None
    assert "spec" not in manifest
    assert "managedFields" not in manifest["metadata"]
    assert (manifest["kind"], manifest["metadata"]["resourceVersion"]) == ("Pod", "1")
    manifest["status"]["phase"] = "Failed"
    assert store.select(POD, "n", labels=SELECTOR)[0]["status"] == {"phase": "Running"}
    assert store.select(POD, "n", labels=f"{JOB_LABEL}=other") == []
    assert store.select(POD, "n", labels=f"{RUN_LABEL}=other,{JOB_LABEL}=j") == []


def test_pods_of_programs_are_selected_by_the_pool_in_their_label() -> None:
    store = ObjectCache()
    for name, pool in (("a", "p"), ("b", "q")):
        pod = a_pod(name)
        pod["metadata"]["labels"] = {JOB_LABEL: "j", PROGRAMS_LABEL: pool}
        store.put(POD, pod)
    (selected,) = store.select(POD, "n", labels=f"{PROGRAMS_LABEL}=p")
    assert selected["metadata"]["name"] == "a"


def test_a_selector_that_no_index_serves_is_no_empty_answer() -> None:
    with pytest.raises(AssertionError, match="indexed"):
        ObjectCache().select(POD, "n", labels=f"{RUN_LABEL}=r")


def test_news_is_what_differs_in_more_than_its_version() -> None:
    store = ObjectCache()
    assert store.put(POD, a_pod("a", version=1, phase="Pending"))
    assert not store.put(POD, a_pod("a", version=1, phase="Pending"))
    assert not store.put(POD, a_pod("a", version=2, phase="Pending"))
    assert store.put(POD, a_pod("a", version=3, phase="Running"))
    assert not store.put(POD, a_pod("a", version=2, phase="Pending"))
    assert store.put(POD, a_pod("a", uid="v", version=4, phase="Running"))


def test_what_has_gone_does_not_come_back_but_its_label_may() -> None:
    store = ObjectCache()
    store.put(POD, a_pod("a", version=3))
    assert store.end(POD, "n", "a", uid="u", version=5)
    assert not store.end(POD, "n", "a", uid="u", version=5)
    assert not store.put(POD, a_pod("a", version=4))
    assert store.get(POD, "n", "a") is None
    assert store.put(POD, a_pod("a", version=6))
    assert not store.end(POD, "n", "a", uid="u", version=5)
    assert store.get(POD, "n", "a") is not None


def test_another_one_of_the_same_name_stays() -> None:
    store = ObjectCache()
    store.put(POD, a_pod("a", uid="new", version=9))
    assert not store.end(POD, "n", "a", uid="old", version=7)
    assert store.seen(POD, "n", "a") == ("new", 9)


def test_what_no_watch_tells_of_is_not_held() -> None:
    store, foreign = ObjectCache(), a_pod("a")
    del foreign["metadata"]["labels"][JOB_LABEL]
    assert not store.put(DEPLOYMENT, foreign)
    assert store.get(DEPLOYMENT, "n", "a") is None


def test_ends_are_forgotten_in_their_order() -> None:
    store = ObjectCache()
    for number in range(KEPT_ENDS + 1):
        store.end(POD, "n", "x", uid=f"u{number}", version=5)
    assert store.put(POD, a_pod("a", uid="u0", version=4))
    assert not store.put(POD, a_pod("a", uid="u1", version=4))


def test_own_writes_are_looked_at_but_for_the_status_of_the_writer() -> None:
    enqueued: list[str] = []
    informer = Informer(ObjectCache(), enqueue=lambda key: enqueued.append(str(key)))
    meta = {"namespace": "n", "name": "j", "uid": "u"}
    job = {"kind": "RLJob", "spec": {}, "metadata": {**meta, "resourceVersion": "1"}}
    informer.observed("ADDED", job)
    assert enqueued == ["RLJob/n/j"]
    changed = {**job, "status": {"phase": "Running"}, "metadata": {**meta, "resourceVersion": "2"}}
    informer.stored(RLJOB, changed, subresource="status")
    informer.observed("MODIFIED", changed)  # its echo
    assert enqueued == ["RLJob/n/j"]
    enqueued.clear()
    informer.stored(POD, a_pod("a"), subresource="")
    assert enqueued == ["RLJob/n/j", "SamplerPool/n/p"]
    informer.ended(POD, "n", "a", uid="u")
    informer.observed("DELETED", a_pod("a", version=2))
    assert enqueued == ["RLJob/n/j", "SamplerPool/n/p"] * 2


MADE: dict[str, tuple[Kind, dict[str, Any], list[str]]] = {
    "a pool": (SAMPLER_POOL, {"spec": {"job": "j"}}, ["SamplerPool/n/p"]),
    "a Deployment": (DEPLOYMENT, {"labels": {"rl-operator.io/pool": "p"}}, []),
    "a trainer": (PYTORCH_JOB, {}, []),
}


@pytest.mark.parametrize(("kind", "fields", "others"), MADE.values(), ids=MADE.keys())
def test_who_makes_an_object_knows_of_it(
    kind: Kind, fields: dict[str, Any], others: list[str]
) -> None:
    enqueued: list[str] = []
    informer = Informer(ObjectCache(), enqueue=lambda key: enqueued.append(str(key)))

    def manifest(version: int) -> dict[str, Any]:
        labels = {"rl-operator.io/job": "j", **fields.get("labels", {})}
        meta = {"namespace": "n", "name": "p", "uid": "u", "labels": labels}
        spec = {"spec": fields.get("spec", {})}
        return {"kind": kind.name, **spec, "metadata": {**meta, "resourceVersion": str(version)}}

    informer.stored(kind, manifest(1), subresource="")
    informer.observed("ADDED", manifest(1))  # its echo
    assert enqueued == others
    changed = manifest(2)
    changed["spec"] = {**changed["spec"], "x": 1}
    enqueued.clear()
    informer.stored(kind, changed, subresource="")
    assert set(enqueued) > set(others)  # a later change is news to all
    enqueued.clear()
    informer.observed("MODIFIED", {**manifest(3), "status": {"replicas": 1}})
    assert set(enqueued) > set(others)


def test_what_a_list_does_not_show_has_gone_and_is_looked_at() -> None:
    seen: list[str] = []
    store = ObjectCache()
    informer = Informer(store, enqueue=lambda key: seen.append(str(key)))
    for name, uid, version in (("a", "gone", 3), ("b", "there", 4), ("c", "newer", 9)):
        store.put(POD, a_pod(name, uid=uid, version=version))
    informer.list_ended("Deployment", "", set(), 7)
    informer.list_ended("Pod", "elsewhere", set(), 7)
    assert seen == []
    informer.list_ended("Pod", "n", {"there"}, 7)
    assert seen == ["RLJob/n/j", "SamplerPool/n/p"]
    left = store.select(POD, "n", labels=SELECTOR)
    assert [manifest["metadata"]["name"] for manifest in left] == ["b", "c"]
    assert not store.put(POD, a_pod("a", uid="gone", version=6))


BIRTHS: dict[str, tuple[str | None, int | None, bool]] = {
    "just made": ("ADDED", None, True),
    "just made, with the status that the definition has": ("ADDED", -1, True),
    "looked at by another leader": ("ADDED", 1, False),
    "there before the watch began": (None, None, False),
    "changed": ("MODIFIED", None, False),
}


@pytest.mark.parametrize(("change", "observed", "born"), BIRTHS.values(), ids=BIRTHS.keys())
def test_births_are_told_before_the_look(
    change: str | None, observed: int | None, born: bool
) -> None:
    calls: list[str] = []
    informer = Informer(
        ObjectCache(),
        enqueue=lambda key: calls.append("look"),
        created=lambda key: calls.append(str(key)),
    )
    status = {} if observed is None else {"status": {"observedGeneration": observed}}
    meta = {"namespace": "n", "name": "j", "uid": "u", "resourceVersion": "1"}
    informer.observed(change, {"kind": "RLJob", "spec": {}, "metadata": meta, **status})
    assert calls == (["RLJob/n/j", "look"] if born else ["look"])


def test_a_pool_that_we_make_is_born() -> None:
    born: list[str] = []
    informer = Informer(
        ObjectCache(), enqueue=lambda key: None, created=lambda key: born.append(str(key))
    )
    meta = {"namespace": "n", "name": "p", "uid": "u", "resourceVersion": "1"}
    pool = {"kind": "SamplerPool", "spec": {"job": "j"}, "metadata": meta}
    informer.stored(SAMPLER_POOL, pool, subresource="")
    informer.stored(POD, a_pod("a"), subresource="")
    assert born == ["SamplerPool/n/p"]


@dataclass
class World:
    """An API server, and what is on its way to the store."""

    seen: list[Key] = field(default_factory=list)
    present: dict[str, Raw] = field(default_factory=dict)
    watched: dict[str, list[tuple[str, Raw]]] = field(default_factory=dict)
    """By uid: kopf keeps the order of one object's events, and of no others."""
    answers: list[Raw] = field(default_factory=list)
    version: int = 0
    during: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.store = ObjectCache()
        self.informer = Informer(self.store, enqueue=lambda key: self.seen.append(key))
        self.reader = CachedReader(self, clock=lambda: 0.0, seconds=1.0, store=self.store)

    def write(self, name: str, *, ours: bool) -> None:
        self.version += 1
        before = self.present.get(name)
        uid = before["metadata"]["uid"] if before else f"u{self.version}"
        pod = self.present[name] = a_pod(name, uid=uid, version=self.version, at=self.version)
        self.watched.setdefault(uid, []).append(("MODIFIED" if before else "ADDED", pod))
        if ours:
            self.answers.append(pod)

    def remove(self, name: str) -> None:
        pod = self.present.pop(name, None)
        if pod is not None:
            self.version += 1
            uid = pod["metadata"]["uid"]
            gone = a_pod(name, uid=uid, version=self.version)
            self.watched.setdefault(uid, []).append(("DELETED", gone))

    def deliver(self, number: int, *, twice: bool) -> None:
        waiting = [uid for uid, events in self.watched.items() if events]
        if waiting:
            change, pod = self.watched[waiting[number % len(waiting)]].pop(0)
            for _ in range(1 + twice):
                self.informer.observed(change, pod)

    def answer(self, number: int) -> None:
        if self.answers:
            pod = self.answers.pop(number % len(self.answers))
            self.informer.stored(POD, pod, subresource="")
            held = self.store.seen(POD, "n", pod["metadata"]["name"])
            assert held is None or held[1] >= int(pod["metadata"]["resourceVersion"])

    def get(self, kind: Kind, namespace: str, name: str) -> Raw | None:
        raise AssertionError

    def select(self, kind: Kind, namespace: str, *, labels: str) -> list[Raw]:
        self.during()
        pods = list(self.present.values())
        self.during()
        return pods

    def relist(self) -> None:
        """The watch was too old: what it had still to tell is lost, and a list begins it anew."""
        self.watched.clear()
        present, version = list(self.present.values()), self.version
        for pod in present:
            self.during()
            self.informer.observed(None, pod)
        self.during()
        self.informer.list_ended(
            "Pod", "", {manifest["metadata"]["uid"] for manifest in present}, version
        )

    def look(self) -> None:
        self.reader.distrust(KEY)
        self.reader.observe(KEY, pods)


def pods(reads: Reads) -> list[Raw]:
    return reads.select(POD, "n", labels=SELECTOR)


NUMBER = st.integers(0, 5)
Step = tuple[str, Any, Any]
UNWATCHED = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(NAMES), st.booleans()),
    st.tuples(st.just("remove"), st.sampled_from(NAMES), st.none()),
    st.tuples(st.just("answer"), NUMBER, st.none()),
)
STEPS = st.one_of(UNWATCHED, st.tuples(st.just("deliver"), NUMBER, st.booleans()))
MEANWHILE = st.one_of(
    st.tuples(st.just("look"), st.lists(STEPS, max_size=4)),
    st.tuples(st.just("relist"), st.lists(UNWATCHED, max_size=4)),
)


def take(world: World, step: Step) -> None:
    kind, first, second = step
    if kind == "write":
        world.write(first, ours=second)
    elif kind == "remove":
        world.remove(first)
    elif kind == "deliver":
        world.deliver(first, twice=second)
    else:
        world.answer(first)


def one_after_the_other(world: World, steps: list[Step]) -> Callable[[], None]:
    """Takes one of the steps at each call."""
    left = list(steps)

    def next_one() -> None:
        if left:
            take(world, left.pop(0))

    return next_one


def state(manifests: list[Raw]) -> dict[str, tuple[str, str]]:
    metas = [pod["metadata"] for pod in manifests]
    return {meta["name"]: (meta["uid"], meta["resourceVersion"]) for meta in metas}


@example([("write", "a", True), ("remove", "a", None), ("relist", [])])
@given(st.lists(st.one_of(STEPS, MEANWHILE), max_size=30))
def test_once_all_is_told_the_store_is_the_server(
    steps: list[Step | tuple[str, list[Step]]],
) -> None:
    """During a live look, or while a watch begins anew, other things happen."""
    world = World()
    for step in steps:
        if len(step) == 2:
            world.during = one_after_the_other(world, step[1])
            (world.look if step[0] == "look" else world.relist)()
            world.during = lambda: None
        else:
            take(world, step)
    while any(world.watched.values()):
        world.deliver(0, twice=False)
    while world.answers:
        world.answer(0)
    assert state(pods(world.store)) == state(list(world.present.values()))


@given(st.lists(STEPS, max_size=20))
def test_a_live_look_mends_what_no_watch_has_told(steps: list[Step]) -> None:
    world = World()
    for step in steps:
        take(world, step)
    world.look()
    assert state(pods(world.store)) == state(list(world.present.values()))


def test_a_pod_is_parsed_anew_once_its_version_or_uid_is_another() -> None:
    states = [
        a_pod("a", uid="kept", version=1, phase="Pending"),
        a_pod("a", uid="kept", version=2, phase="Running"),
        a_pod("a", uid="other", version=2, phase="Failed"),
    ]
    for state in states:
        state["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    pods = parsed_pods._Pods(kept=2)
    assert [pods.parse(state).phase for state in states] == ["Pending", "Running", "Failed"]
    assert pods.parse(states[1]) is pods.parse(states[1])
    assert len(pods._found) == 2
