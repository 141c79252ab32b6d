"""What was in order is not rendered again, until anything that it was made from has changed."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes import client

from rl_operator.apply.applier import Applier
from rl_operator.cache.cached_reader import KEPT_IN_PACE
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.kinds import Key
from rl_operator.kube.metadata import Child, Meta

KEY = Key("RLJob", "ns", "job")


def a_child(**changes: Any) -> Child:
    meta = {
        "namespace": "ns",
        "name": "job-main",
        "uid": "u",
        "generation": 1,
        "resourceVersion": "5",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
        "ownerReferences": [{"uid": "o", "controller": True}],
    }
    raw = {"kind": "Deployment", "metadata": {**meta, **changes}, "spec": {}}
    return Child(kind="Deployment", meta=Meta.parse(raw), raw=raw)


CHANGES: dict[str, tuple[dict[str, Any], bool]] = {
    "a status": ({"resourceVersion": "6"}, False),
    "a spec": ({"generation": 2}, True),
    "a label": ({"labels": {"a": "x"}}, True),
    "an annotation": ({"annotations": {}}, True),
    "an owner": ({"ownerReferences": []}, True),
    "another one of its name": ({"uid": "v"}, True),
    "it is being deleted": ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, True),
}


@pytest.mark.parametrize(("changes", "matters"), CHANGES.values(), ids=CHANGES.keys())
def test_what_may_be_declared_matters(changes: dict[str, Any], matters: bool) -> None:
    assert (a_child().declared != a_child(**changes).declared) is matters


def test_rest_lasts_until_something_changes_or_time_has_passed() -> None:
    now = [0.0]
    api = client.ApiClient(client.Configuration())
    cluster = Cluster(api, may_write=lambda: None, count=lambda verb, kind: None)
    applier = Applier(cluster, clock=lambda: now[0], trust_seconds=120.0)
    before, after = (a_child().declared,), (a_child(generation=2).declared,)
    assert not applier.rests(KEY, before)
    assert applier.rest_seconds(KEY) == 0.0
    applier.rested(KEY, before)
    now[0] = 119.0
    assert applier.rests(KEY, before)
    assert applier.rest_seconds(KEY) == 1.0
    assert not applier.rests(KEY, after)
    applier.rested(KEY, before)  # a look that found nothing to do because it did not look
    now[0] = 120.0
    assert not applier.rests(KEY, before)
    assert applier.rest_seconds(KEY) == 0.0
    now[0] = 0.0
    applier.forget(KEY)
    assert not applier.rests(KEY, before)


def test_of_many_owners_each_is_read_for_more_rarely() -> None:
    now = [0.0]
    api = client.ApiClient(client.Configuration())
    cluster = Cluster(api, may_write=lambda: None, count=lambda verb, kind: None)
    applier = Applier(cluster, clock=lambda: now[0], trust_seconds=120.0)
    for number in range(3 * KEPT_IN_PACE):
        applier.rested(Key("RLJob", "ns", f"job-{number}"), ("all",))
    first = Key("RLJob", "ns", "job-0")
    assert applier.rest_seconds(first) == 360.0
    now[0] = 359.0
    assert applier.rests(first, ("all",))
    now[0] = 360.0
    assert not applier.rests(first, ("all",))


def test_who_trusts_nothing_never_rests() -> None:
    api = client.ApiClient(client.Configuration())
    applier = Applier(Cluster(api, may_write=lambda: None, count=lambda verb, kind: None))
    applier.rested(KEY, ())
    assert not applier.rests(KEY, ())
