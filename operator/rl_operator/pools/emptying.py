"""Removes a pool's pods. That needs no template, so that a refused one is not in the way."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rl_operator.kube import kinds
from rl_operator.kube.api_errors import ApiRefusedError
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.conditions import Stall
from rl_operator.kube.metadata import Child
from rl_operator.render.samplers import deployment
from rl_operator.state.snapshot import PoolSnapshot

KEEPERS = {kind.name: kind for kind in (kinds.DEPLOYMENT, kinds.SANDBOX_WARM_POOL)}
"""Kinds that keep a number of pods."""


def empty(
    cluster: Cluster, snapshot: PoolSnapshot, annotations: Mapping[str, str] | None = None
) -> Stall | None:
    """Scale a pool to 0 pods; return what prevents that, if anything.

    A Deployment that does not exist has no pods.

    Args:
        cluster: to write to.
        snapshot: of the pool.
        annotations: of the Deployment, to be written with it.

    Raises:
        ApiConflictError: an object has changed since it was observed.
    """
    child = snapshot.children.get((kinds.DEPLOYMENT.name, snapshot.key.name))
    try:
        if child is not None and (snapshot.deployment.declared or annotations):
            cluster.merge(kinds.DEPLOYMENT, deployment.emptied(child.meta, annotations))
        empty_own_pods(cluster, snapshot)
    except ApiRefusedError as error:
        message = f"The API server refused to remove the pool's pods: {error.message}"
        return Stall(reason="ChildRefused", message=message)
    return None


def empty_own_pods(
    cluster: Cluster, snapshot: PoolSnapshot, *, but: Collection[tuple[str, str]] = ()
) -> None:
    """Remove the pods of programs and environments; what keeps them goes with their pool.

    Args:
        cluster: to write to.
        snapshot: of the pool.
        but: kind and name of what keeps its pods.
    """
    for child in keepers_beside(snapshot):
        if (child.kind, child.meta.name) not in but and child.raw["spec"].get("replicas", 1):
            cluster.merge(KEEPERS[child.kind], deployment.emptied(child.meta))
    for child in own_children(snapshot):
        if child.kind == kinds.SANDBOX_CLAIM.name and (child.kind, child.meta.name) not in but:
            namespace, meta = snapshot.key.namespace, child.meta
            cluster.delete(kinds.SANDBOX_CLAIM, namespace, meta.name, uid=meta.uid)


def own_children(snapshot: PoolSnapshot) -> list[Child]:
    """The objects that the pool owns."""
    owner = snapshot.pool.meta.uid
    return [child for child in snapshot.children.values() if child.meta.owner_uid == owner]


def keepers_beside(snapshot: PoolSnapshot) -> list[Child]:
    """What keeps pods of programs and environments."""
    own = (kinds.DEPLOYMENT.name, snapshot.key.name)
    return [
        child
        for child in own_children(snapshot)
        if child.kind in KEEPERS and (child.kind, child.meta.name) != own
    ]
