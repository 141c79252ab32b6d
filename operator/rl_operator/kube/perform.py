"""Performs one action of a plan on the API server."""

from __future__ import annotations

import logging

from rl_operator.kube.cluster import Cluster
from rl_operator.kube.names import SCALE_MANAGER, SPEC_MANAGER
from rl_operator.kube.plan import Action, Apply, Create, Delete

log = logging.getLogger(__name__)

BARE = ("name", "namespace", "ownerReferences")
"""Metadata of an object whose first write is not an apply."""


def perform(cluster: Cluster, namespace: str, action: Action) -> None:
    """Create, apply or delete one object of a namespace.

    Raises:
        ApiConflictError: the object to be created exists, or the object to be changed has changed
            or is gone.
        ApiRefusedError: the API server refuses the object.
    """
    log.info("%s", action)
    match action:
        case Create():
            _create(cluster, action)
        case Apply(kind=kind, manifest=manifest):
            cluster.apply(kind, manifest, manager=SPEC_MANAGER)
        case Delete(kind=kind, name=name, uid=uid):
            cluster.delete(kind, namespace, name, uid=uid)


def _create(cluster: Cluster, action: Create) -> None:
    """Create an object in the way in which it is changed later.

    Whatever a POST writes belongs to an update, and an apply that leaves such a field out does not
    remove it. So only what is never changed is created by a POST, which fails where an object of
    the name exists. What is applied later is applied from the start. A field that belongs to others
    from its creation on, such as ``replicas``, is handed over as Kubernetes documents it for
    autoscalers: another field manager writes it first, and our applies leave it out.
    """
    kind, manifest = action.kind, action.manifest
    if action.immutable:
        cluster.create(kind, manifest, manager=SPEC_MANAGER)
    elif action.initial_spec:
        metadata = {key: manifest["metadata"][key] for key in BARE if key in manifest["metadata"]}
        bare = {**manifest, "metadata": metadata, "spec": action.initial_spec}
        uid = cluster.create(kind, bare, manager=SCALE_MANAGER)["metadata"]["uid"]
        completed = {**manifest, "metadata": {**manifest["metadata"], "uid": uid}}
        cluster.apply(kind, completed, manager=SPEC_MANAGER)
    else:
        cluster.apply(kind, manifest, manager=SPEC_MANAGER)
