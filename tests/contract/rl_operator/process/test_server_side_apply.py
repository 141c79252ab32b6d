"""On a real API server: applies remove what they leave out, and leave alone what others own."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from kubernetes import client

from rl_operator.kube import kinds
from rl_operator.kube.api_errors import ApiConflictError, ApiRefusedError
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.kinds import Kind
from rl_operator.kube.names import SPEC_MANAGER
from rl_operator.kube.perform import perform
from rl_operator.kube.plan import Apply, Create
from tests.contract.rl_operator.reconciling import CrashError, Writes
from tests.contract.rl_operator.world import a_namespace
from tests.kube.apiserver import ApiServer

Manifest = dict[str, Any]
POD: Manifest = {
    "metadata": {"labels": {"of": "us"}},
    "spec": {"containers": [{"name": "agent", "image": "x", "env": [{"name": "A", "value": "1"}]}]},
}
DRESSED: Manifest = {
    "metadata": {"labels": {"of": "us", "more": "1"}, "annotations": {"more": "1"}},
    "spec": {
        "nodeSelector": {"a": "b"},
        "priorityClassName": "system-node-critical",
        "tolerations": [{"operator": "Exists"}],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
        "containers": [
            {
                "name": "agent",
                "image": "x",
                "args": ["--x"],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
            },
            {"name": "side", "image": "y"},
        ],
    },
}
CHOSEN: Manifest = {"matchLabels": {"of": "us"}}
OPEN: Manifest = {"ports": [{"port": 8080, "protocol": "TCP"}]}
KINDS: dict[Kind, tuple[Manifest, Manifest]] = {
    kinds.NETWORK_POLICY: (
        {"spec": {"podSelector": CHOSEN, "policyTypes": ["Ingress"], "ingress": [OPEN, {}]}},
        {"spec": {"podSelector": CHOSEN, "ingress": [OPEN]}},
    ),
    kinds.DISRUPTION_BUDGET: (
        {
            "spec": {
                "maxUnavailable": 1,
                "selector": CHOSEN,
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
            }
        },
        {"spec": {"maxUnavailable": 2, "selector": CHOSEN}},
    ),
    kinds.SAMPLER_POOL: (
        {
            "spec": {
                "job": "job",
                "admitted": 1,
                "template": {
                    "nodeSelector": {"a": "b"},
                    "engine": {"args": ["--x"]},
                    "podTemplate": {"spec": {"hostname": "x"}},
                },
            }
        },
        {"spec": {"job": "job", "template": {"engine": {"startupSeconds": 70}}}},
    ),
    kinds.DEPLOYMENT: (
        {"spec": {"replicas": 1, "selector": CHOSEN, "template": DRESSED, "minReadySeconds": 3}},
        {"spec": {"replicas": 1, "selector": CHOSEN, "template": POD}},
    ),
}
OWNED = ("labels", "annotations")


class Place:
    """A namespace, and the operator's writes to it, the last of which may never come."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self.writes, self.namespace = Writes(), namespace
        self.cluster = Cluster(api, may_write=self.writes.may_write, count=lambda *_: None)

    def manifest(self, kind: Kind, parts: Manifest, *, name: str = "it", **meta: Any) -> Manifest:
        metadata = {"name": name, "namespace": self.namespace, "labels": {"of": "us"}, **meta}
        stamp = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}
        return copy.deepcopy({**stamp, **parts})

    def stored(self, kind: Kind, name: str = "it") -> Manifest:
        stored = self.cluster.get(kind, self.namespace, name)
        assert stored is not None
        return stored

    def create(self, kind: Kind, parts: Manifest, **meta: Any) -> None:
        manifest = self.manifest(kind, parts, **meta)
        if kind == kinds.SAMPLER_POOL:
            manifest["spec"]["replicas"] = 3
        perform(self.cluster, self.namespace, Create(kind=kind, manifest=manifest))

    def apply(self, kind: Kind, parts: Manifest, *, version: str = "") -> None:
        version = version or self.stored(kind)["metadata"]["resourceVersion"]
        manifest = self.manifest(kind, parts, resourceVersion=version)
        perform(self.cluster, self.namespace, Apply(kind=kind, manifest=manifest))

    def declared(self, kind: Kind, name: str = "it") -> Manifest:
        """All that somebody has declared of an object."""
        stored = self.stored(kind, name)
        meta = {key: stored["metadata"].get(key) or {} for key in OWNED}
        return meta | {key: stored[key] for key in ("spec", "data") if key in stored}

    def owners(self, kind: Kind, field: str) -> set[tuple[str, str]]:
        """Who owns a field of the spec."""
        entries = self.stored(kind)["metadata"]["managedFields"]
        return {
            (entry["manager"], entry["operation"])
            for entry in entries
            if f"f:{field}" in entry["fieldsV1"].get("f:spec", {})
        }


@pytest.fixture
def place(with_trainer_kind: ApiServer, api: client.ApiClient) -> Place:
    return Place(api, a_namespace(with_trainer_kind))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_apply_removes_omitted_fields_that_a_create_set(place: Place, kind: Kind) -> None:
    rich, bare = KINDS[kind]
    place.create(kind, rich, labels={"of": "us", "more": "1"}, annotations={"more": "1"})
    place.apply(kind, bare)
    place.create(kind, bare, name="fresh")
    expected = place.declared(kind, "fresh")
    assert place.declared(kind) == expected
    place.apply(kind, rich)
    place.apply(kind, bare)
    assert place.declared(kind) == expected


def test_apply_leaves_the_replicas_of_a_pool_to_others(place: Place) -> None:
    rich, bare = KINDS[kinds.SAMPLER_POOL]
    place.create(kinds.SAMPLER_POOL, rich)
    assert place.stored(kinds.SAMPLER_POOL)["spec"]["replicas"] == 3
    assert place.owners(kinds.SAMPLER_POOL, "replicas") == {(SPEC_MANAGER, "Update")}
    theirs = {"name": "it", "namespace": place.namespace, "annotations": {"theirs": "1"}}
    scaled = {"metadata": theirs, "spec": {"replicas": 7}}
    place.cluster.merge(kinds.SAMPLER_POOL, scaled)
    place.apply(kinds.SAMPLER_POOL, bare)
    declared = place.declared(kinds.SAMPLER_POOL)
    assert (declared["spec"]["replicas"], declared["annotations"]) == (7, {"theirs": "1"})
    assert "admitted" not in declared["spec"]


def test_the_first_apply_leaves_the_replicas_that_the_creation_set(place: Place) -> None:
    rich, bare = KINDS[kinds.SAMPLER_POOL]
    place.create(kinds.SAMPLER_POOL, rich)
    for parts in (bare, rich):
        place.apply(kinds.SAMPLER_POOL, parts)
        assert place.stored(kinds.SAMPLER_POOL)["spec"]["replicas"] == 3
        assert place.owners(kinds.SAMPLER_POOL, "replicas") == set()
        assert place.owners(kinds.SAMPLER_POOL, "template") == {(SPEC_MANAGER, "Apply")}


def test_apply_to_an_outdated_version_changes_nothing(place: Place) -> None:
    rich, bare = KINDS[kinds.SAMPLER_POOL]
    place.create(kinds.SAMPLER_POOL, rich)
    seen = place.stored(kinds.SAMPLER_POOL)["metadata"]["resourceVersion"]
    change = {"name": "it", "namespace": place.namespace, "annotations": {"theirs": "1"}}
    place.cluster.merge(kinds.SAMPLER_POOL, {"metadata": change})
    before = place.stored(kinds.SAMPLER_POOL)
    with pytest.raises(ApiConflictError):
        place.apply(kinds.SAMPLER_POOL, bare, version=seen)
    assert place.stored(kinds.SAMPLER_POOL) == before


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_apply_goes_on_where_a_process_died_before_it(place: Place, kind: Kind) -> None:
    rich, bare = KINDS[kind]
    place.create(kind, rich)
    place.writes.crash_after = place.writes.count + 1  # the owner of the fields has changed
    with pytest.raises(CrashError):
        place.apply(kind, bare)
    place.writes.crash_after = None
    place.apply(kind, bare)
    place.create(kind, bare, name="fresh")
    assert place.declared(kind) == place.declared(kind, "fresh")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_create_does_not_overwrite_an_existing_object(place: Place, kind: Kind) -> None:
    rich, bare = KINDS[kind]
    place.create(kind, rich)
    before = place.stored(kind)
    with pytest.raises(ApiConflictError):
        place.create(kind, bare)
    assert place.stored(kind) == before


def test_the_mounted_spec_is_immutable(place: Place) -> None:
    config = place.manifest(kinds.CONFIG_MAP, {"data": {"a": "1"}, "immutable": True})
    made = Create(kind=kinds.CONFIG_MAP, manifest=config)
    perform(place.cluster, place.namespace, made)
    with pytest.raises(ApiConflictError):
        perform(place.cluster, place.namespace, made)
    with pytest.raises(ApiRefusedError):
        place.cluster.merge(kinds.CONFIG_MAP, {**config, "data": {"a": "2"}})
