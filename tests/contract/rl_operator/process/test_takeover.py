"""On a real API server: what was created by a POST loses what a later apply leaves out."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from kubernetes import client

from rl_operator.kube import kinds
from rl_operator.kube.api_errors import ApiConflictError
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.kinds import Kind
from rl_operator.kube.names import SCALE_MANAGER, SPEC_MANAGER
from rl_operator.kube.perform import perform
from rl_operator.kube.plan import Apply, Create
from tests.apiserver import ApiServer
from tests.contract.rl_operator.world import CrashError, Writes, a_namespace

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
    kinds.CONFIG_MAP: ({"data": {"a": "1", "b": "2"}}, {"data": {"a": "1"}}),
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
                "replicas": 3,
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
    kinds.PYTORCH_JOB: (
        {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": DRESSED}}}},
        {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": POD}}}},
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
        found = self.cluster.get(kind, self.namespace, name)
        assert found is not None
        return found

    def create(self, kind: Kind, parts: Manifest, **meta: Any) -> None:
        made = Create(kind=kind, manifest=self.manifest(kind, parts, **meta))
        perform(self.cluster, self.namespace, made)

    def apply(self, kind: Kind, parts: Manifest, *, version: str = "") -> None:
        version = version or self.stored(kind)["metadata"]["resourceVersion"]
        manifest = self.manifest(kind, parts, resourceVersion=version)
        perform(self.cluster, self.namespace, Apply(kind=kind, manifest=manifest))

    def declared(self, kind: Kind, name: str = "it") -> Manifest:
        """All that somebody has declared of an object."""
        found = self.stored(kind, name)
        meta = {key: found["metadata"].get(key) or {} for key in OWNED}
        return meta | {key: found[key] for key in ("spec", "data") if key in found}

    def owners(self, kind: Kind) -> set[tuple[str, str]]:
        entries = self.stored(kind)["metadata"]["managedFields"]
        return {(entry["manager"], entry["operation"]) for entry in entries}


@pytest.fixture
def place(with_trainer_kind: ApiServer, api: client.ApiClient) -> Place:
    return Place(api, a_namespace(with_trainer_kind))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_is_no_longer_declared_goes(place: Place, kind: Kind) -> None:
    rich, bare = KINDS[kind]
    place.create(kind, rich, labels={"of": "us", "more": "1"}, annotations={"more": "1"})
    place.apply(kind, bare)
    place.create(kind, bare, name="anew")
    expected = place.declared(kind, "anew")
    if kind == kinds.SAMPLER_POOL:  # others' from its creation on
        expected["spec"]["replicas"] = 3
    assert place.declared(kind) == expected
    assert (SPEC_MANAGER, "Apply") in place.owners(kind)
    assert (SPEC_MANAGER, "Update") not in place.owners(kind)
    before = place.writes.count
    place.apply(kind, rich)
    assert place.writes.count == before + 1  # nothing was left to hand over
    place.apply(kind, bare)
    assert place.declared(kind) == expected


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_was_once_applied_is_applied_on(place: Place, kind: Kind) -> None:
    """Of a process of an earlier version, which created by an apply."""
    rich, bare = KINDS[kind]
    made = place.manifest(kind, rich, labels={"of": "us", "more": "1"})
    if kind == kinds.SAMPLER_POOL:
        first = place.manifest(kind, {"spec": {"job": "job", "replicas": 3}})
        place.cluster.apply(kind, first, manager=SCALE_MANAGER)
        del made["spec"]["replicas"]
    place.cluster.apply(kind, made, manager=SPEC_MANAGER)
    before = place.writes.count
    place.apply(kind, bare)
    assert place.writes.count == before + 1
    place.create(kind, bare, name="anew")
    expected = place.declared(kind, "anew")
    if kind == kinds.SAMPLER_POOL:
        expected["spec"]["replicas"] = 3
    assert place.declared(kind) == expected


def test_what_others_have_stays(place: Place) -> None:
    rich, bare = KINDS[kinds.SAMPLER_POOL]
    place.create(kinds.SAMPLER_POOL, rich)
    theirs = {"name": "it", "namespace": place.namespace, "annotations": {"theirs": "1"}}
    scaled = {"metadata": theirs, "spec": {"replicas": 7}}
    place.cluster.merge(kinds.SAMPLER_POOL, scaled)
    place.apply(kinds.SAMPLER_POOL, bare)
    found = place.declared(kinds.SAMPLER_POOL)
    assert (found["spec"]["replicas"], found["annotations"]) == (7, {"theirs": "1"})
    assert "admitted" not in found["spec"]


def test_a_version_that_is_gone_is_not_handed_over(place: Place) -> None:
    rich, bare = KINDS[kinds.SAMPLER_POOL]
    place.create(kinds.SAMPLER_POOL, rich)
    seen = place.stored(kinds.SAMPLER_POOL)["metadata"]["resourceVersion"]
    change = {"name": "it", "namespace": place.namespace, "annotations": {"theirs": "1"}}
    place.cluster.merge(kinds.SAMPLER_POOL, {"metadata": change})
    before = place.stored(kinds.SAMPLER_POOL)
    with pytest.raises(ApiConflictError):
        place.apply(kinds.SAMPLER_POOL, bare, version=seen)
    assert place.stored(kinds.SAMPLER_POOL) == before


def test_a_process_that_dies_between_hand_over_and_apply_leaves_it_to_the_next(
    place: Place,
) -> None:
    rich, bare = KINDS[kinds.DEPLOYMENT]
    place.create(kinds.DEPLOYMENT, rich)
    before = place.declared(kinds.DEPLOYMENT)
    place.writes.crash_after = place.writes.count + 1
    with pytest.raises(CrashError):
        place.apply(kinds.DEPLOYMENT, bare)
    assert place.declared(kinds.DEPLOYMENT) == before
    place.writes.crash_after = None
    place.apply(kinds.DEPLOYMENT, bare)
    assert "nodeSelector" not in place.declared(kinds.DEPLOYMENT)["spec"]["template"]["spec"]


def test_a_version_that_hands_nothing_over_may_have_been_between(place: Place) -> None:
    rich, bare = KINDS[kinds.DEPLOYMENT]
    place.create(kinds.DEPLOYMENT, rich)
    made = place.manifest(kinds.DEPLOYMENT, rich)
    place.cluster.apply(kinds.DEPLOYMENT, made, manager=SPEC_MANAGER)
    assert {(SPEC_MANAGER, "Apply"), (SPEC_MANAGER, "Update")} <= place.owners(kinds.DEPLOYMENT)
    place.apply(kinds.DEPLOYMENT, bare)
    place.create(kinds.DEPLOYMENT, bare, name="anew")
    assert place.declared(kinds.DEPLOYMENT) == place.declared(kinds.DEPLOYMENT, "anew")
