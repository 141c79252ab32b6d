"""Carries one action of a plan out."""

from __future__ import annotations

import logging

from rl_operator.kube.cluster import Cluster
from rl_operator.kube.kinds import SAMPLER_POOL
from rl_operator.kube.names import SCALE_MANAGER, SPEC_MANAGER
from rl_operator.kube.plan import Action, Apply, Create, Delete, Manifest
from rl_operator.kube.takeover import handed_over

log = logging.getLogger(__name__)

SCALED = {SAMPLER_POOL: ("replicas",)}
"""Fields of a spec that an object is created with, and that are from then on of who scales it."""


def perform(cluster: Cluster, namespace: str, action: Action) -> None:
    """Do one thing to an object of a namespace.

    Raises:
        ApiConflictError: what is to be created is there, or what is to be changed has changed,
            or gone.
        ApiRefusedError: the API server refuses the object.
    """
    log.info("%s", action)
    match action:
        case Create(kind=kind, manifest=manifest):
            cluster.create(kind, manifest, manager=SPEC_MANAGER)
        case Apply(kind=kind):
            cluster.apply(kind, _taken_over(cluster, action), manager=SPEC_MANAGER)
        case Delete(kind=kind, name=name, uid=uid):
            cluster.delete(kind, namespace, name, uid=uid)


def _taken_over(cluster: Cluster, action: Apply) -> Manifest:
    """The manifest, once nothing of what it leaves out would stay for having been created."""
    metadata = action.manifest["metadata"]
    place = {key: metadata[key] for key in ("name", "namespace", "resourceVersion")}
    there = cluster.get(action.kind, place["namespace"], place["name"])
    entries = there["metadata"].get("managedFields", []) if there is not None else []
    left = SCALED.get(action.kind, ())
    owned = handed_over(entries, manager=SPEC_MANAGER, left=left, heir=SCALE_MANAGER)
    if owned is None:
        return action.manifest
    stored = cluster.merge(action.kind, {"metadata": {**place, "managedFields": owned}})
    version = {"resourceVersion": stored["metadata"]["resourceVersion"]}
    return action.manifest | {"metadata": metadata | version}
