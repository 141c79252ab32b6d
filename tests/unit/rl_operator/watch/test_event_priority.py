"""What may wait for other changes, and what may not."""

from __future__ import annotations

from typing import Any

import pytest

from rl_operator.cache.object_cache import Store
from rl_operator.kube.kinds import DEPLOYMENT, POD, PYTORCH_JOB, RLJOB, SAMPLER_POOL, Key, Kind
from rl_operator.kube.names import ASSIGNMENT_ANNOTATION
from rl_operator.watch.event_priority import AT_ONCE, SOON_SECONDS, TOLD_SECONDS, may_wait
from rl_operator.watch.informer import Feed

JOB, POOL = Key("RLJob", "n", "j"), Key("SamplerPool", "n", "p")
NAMES = {RLJOB: "j", SAMPLER_POOL: "p"}
Raw = dict[str, Any]


def an_object(
    kind: Kind,
    *,
    spec: Raw | None = None,
    status: Raw | None = None,
    version: int = 1,
    **metadata: Any,
) -> Raw:
    meta = {
        "namespace": "n",
        "name": NAMES.get(kind, "x"),
        "uid": "u",
        "resourceVersion": str(version),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"rl-operator.io/job": "j", "rl-operator.io/pool": "p"},
    }
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": meta | metadata,
        "spec": spec or {},
        "status": status or {},
    }


def a_pod(phase: str = "Pending", *, version: int, **more: Any) -> Raw:
    metadata = {key: more.pop(key) for key in ("deletionTimestamp",) if key in more}
    return an_object(
        POD, status={"phase": phase, **more}, uid=f"pod-{version}", version=version, **metadata
    )


def says(kind: str, status: str = "True", **more: Any) -> Raw:
    return {"type": kind, "status": status, **more}


GONE = "2026-01-01T00:01:00Z"
READY = [says("Ready")]
WAITS = {"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}
STUCK = {"name": "main", "state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}
CRASHED = {**WAITS, "lastState": {"terminated": {"exitCode": 1}}}
NO_NODE = [says("PodScheduled", "False", message="0/3 nodes")]
PODS: dict[str, tuple[Raw, bool, bool]] = {
    # for its job, for its pool
    "new": (a_pod(version=1), True, True),
    "on a node": (a_pod(version=2, conditions=[says("PodScheduled")]), True, True),
    "being made": (a_pod(version=3, containerStatuses=[WAITS]), True, True),
    "ready": (a_pod("Running", version=4, conditions=READY), False, True),
    "not ready any more": (a_pod("Running", version=5), False, False),
    "on no node": (a_pod(version=6, conditions=NO_NODE), False, False),
    "without an image": (a_pod(version=7, containerStatuses=[STUCK]), False, False),
    "after a crash": (a_pod(version=8, containerStatuses=[CRASHED]), False, False),
    "evicted": (a_pod("Failed", version=9, reason="Evicted"), False, False),
    "to be evicted": (
        a_pod("Running", version=10, conditions=[*READY, says("DisruptionTarget", reason="Taint")]),
        False,
        False,
    ),
    "succeeded": (a_pod("Succeeded", version=11), False, False),
    "about to go": (a_pod(version=12, deletionTimestamp=GONE), False, False),
    "ready and about to go": (
        a_pod("Running", version=13, conditions=READY, deletionTimestamp=GONE),
        False,
        False,
    ),
}


@pytest.mark.parametrize(("pod", "job", "pool"), PODS.values(), ids=PODS.keys())
def test_a_pod(pod: Raw, job: bool, pool: bool) -> None:
    assert [bool(may_wait(one, None, pod)) for one in (JOB, POOL)] == [job, pool]


def a_deployment(declared: int, ready: int, *conditions: Raw, **metadata: Any) -> Raw:
    updated = metadata.pop("updated", ready)
    status = {
        "readyReplicas": ready,
        "updatedReplicas": updated,
        "conditions": list(conditions),
    }
    return an_object(DEPLOYMENT, spec={"replicas": declared}, status=status, **metadata)


SHARED = {"annotations": {ASSIGNMENT_ANNOTATION: "2"}}
DEPLOYMENTS: dict[str, tuple[Raw, float]] = {
    "that grows": (a_deployment(3, 2, says("Progressing")), SOON_SECONDS),
    "that was just made": (an_object(DEPLOYMENT, spec={"replicas": 1}), SOON_SECONDS),
    "that is whole": (a_deployment(3, 3), TOLD_SECONDS),
    "that is rolled": (a_deployment(3, 3, updated=1), AT_ONCE),
    "that shrinks": (a_deployment(1, 3), AT_ONCE),
    "that is empty": (a_deployment(0, 0), AT_ONCE),
    "of a shared pool, whole": (a_deployment(3, 3, **SHARED), AT_ONCE),
    "of a shared pool, that grows": (a_deployment(3, 2, **SHARED), AT_ONCE),
    "that is stuck": (a_deployment(3, 2, says("Progressing", "False", message="late")), AT_ONCE),
    "that may have no pods": (a_deployment(3, 2, says("ReplicaFailure", message="quota")), AT_ONCE),
    "that goes": (a_deployment(3, 2, deletionTimestamp=GONE), AT_ONCE),
}


@pytest.mark.parametrize(("deployment", "seconds"), DEPLOYMENTS.values(), ids=DEPLOYMENTS.keys())
def test_a_deployment(deployment: Raw, seconds: float) -> None:
    assert may_wait(POOL, None, deployment) == seconds


def a_trainer(*conditions: Raw, **metadata: Any) -> Raw:
    return an_object(PYTORCH_JOB, status={"conditions": list(conditions)}, **metadata)


TRAINERS: dict[str, tuple[Raw, bool]] = {
    "new": (a_trainer(), True),
    "at work": (a_trainer(says("Created"), says("Running")), True),
    "at work again": (a_trainer(says("Failed", "False"), says("Running")), True),
    "done": (a_trainer(says("Running", "False"), says("Succeeded")), False),
    "failed": (a_trainer(says("Failed")), False),
    "that goes": (a_trainer(says("Running"), deletionTimestamp=GONE), False),
}


@pytest.mark.parametrize(("trainer", "waits"), TRAINERS.values(), ids=TRAINERS.keys())
def test_a_trainer(trainer: Raw, waits: bool) -> None:
    assert bool(may_wait(JOB, None, trainer)) == waits


OWN: Raw = {"job": "j"}
BEFORE: dict[Kind, Raw] = {
    RLJOB: an_object(RLJOB, generation=1),
    SAMPLER_POOL: an_object(SAMPLER_POOL, spec=OWN, generation=1),
}
CHANGED: dict[str, Raw] = {
    "its spec": {"generation": 2},
    "its labels": {"labels": {"rl-operator.io/job": "j", "a": "b"}},
    "its annotations": {"annotations": {"a": "b"}},
    "its finalizers": {"finalizers": ["x"]},
    "that it is to go": {"deletionTimestamp": GONE},
    "all of it, by another one of its name": {"uid": "v"},
}


@pytest.mark.parametrize("kind", [RLJOB, SAMPLER_POOL], ids=lambda one: one.name)
@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED.keys())
def test_what_is_declared_is_looked_at_at_once(kind: Kind, change: Raw) -> None:
    before = BEFORE[kind]
    after = {**before, "metadata": before["metadata"] | change}
    assert [may_wait(one, before, after) for one in (JOB, POOL)] == [AT_ONCE, AT_ONCE]


def test_a_status_alone_may_wait_for_whom_it_is_of() -> None:
    job, pool = BEFORE[RLJOB], BEFORE[SAMPLER_POOL]
    told = {"status": {"phase": "Running"}}
    assert may_wait(JOB, job, job | told) == SOON_SECONDS
    # A shared pool is given to the next job once this one's status says that it has ended.
    assert may_wait(POOL, job, job | told) == AT_ONCE
    assert [may_wait(one, pool, pool | told) for one in (JOB, POOL)] == [SOON_SECONDS] * 2
    shared = pool | {"spec": {}}
    assert [may_wait(one, shared, shared | told) for one in (JOB, POOL)] == [AT_ONCE] * 2


def test_what_is_new_is_looked_at_at_once_but_by_its_maker() -> None:
    job, pool = BEFORE[RLJOB], BEFORE[SAMPLER_POOL]
    assert may_wait(JOB, None, job) == AT_ONCE
    assert may_wait(POOL, None, pool) == AT_ONCE
    assert may_wait(JOB, None, pool) == SOON_SECONDS
    assert may_wait(JOB, None, pool | {"spec": {}}) == AT_ONCE


def test_the_feed_says_how_soon() -> None:
    looks: list[tuple[str, float]] = []
    feed = Feed(Store(), look=lambda key, within: looks.append((key.kind, within)))
    new = an_object(POD, uid="fed", status={"phase": "Pending"})
    ready = {"phase": "Running", "conditions": READY}
    feed.watched("ADDED", new)
    feed.watched("MODIFIED", an_object(POD, uid="fed", version=2, status=ready))
    feed.watched("DELETED", an_object(POD, uid="fed", version=3))
    assert looks == [
        ("RLJob", SOON_SECONDS),
        ("SamplerPool", SOON_SECONDS),
        ("RLJob", AT_ONCE),
        ("SamplerPool", SOON_SECONDS),
        ("RLJob", AT_ONCE),
        ("SamplerPool", AT_ONCE),
    ]
    looks.clear()
    feed.watched("ADDED", BEFORE[RLJOB])
    told = an_object(RLJOB, generation=1, version=2, status={"phase": "Running"})
    feed.watched("MODIFIED", told)
    assert looks == [
        ("RLJob", AT_ONCE),
        ("SamplerPool", AT_ONCE),
        ("RLJob", SOON_SECONDS),
        ("SamplerPool", AT_ONCE),
    ]
