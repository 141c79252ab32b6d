"""Performs one action of a plan on the API server."""

from __future__ import annotations

import copy
import logging
from typing import Any

from rl_operator.kube import kinds
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.kinds import Kind
from rl_operator.kube.names import SPEC_MANAGER
from rl_operator.kube.plan import Action, Apply, Create, Delete

log = logging.getLogger(__name__)

Manifest = dict[str, Any]
LEFT_TO_OTHERS = {kinds.SAMPLER_POOL: ("replicas",)}
"""Fields of the spec that an object is created with, and that belong to others from then on."""


def perform(cluster: Cluster, namespace: str, action: Action) -> None:
    """Create, apply or delete one object of a namespace.

    Objects are created by a POST, which fails where an object of the name exists, whoever owns it.

    Raises:
        ApiConflictError: the object to be created exists, or the object to be changed has changed
            or is gone.
        ApiRefusedError: the API server refuses the object.
    """
    log.info("%s", action)
    match action:
        case Create(kind=kind, manifest=manifest):
            cluster.create(kind, manifest, manager=SPEC_MANAGER)
        case Apply(kind=kind, manifest=manifest):
            version = _version_to_apply_to(cluster, kind, manifest["metadata"])
            metadata = manifest["metadata"] | {"resourceVersion": version}
            cluster.apply(kind, manifest | {"metadata": metadata}, manager=SPEC_MANAGER)
        case Delete(kind=kind, name=name, uid=uid):
            cluster.delete(kind, namespace, name, uid=uid)


def _version_to_apply_to(cluster: Cluster, kind: Kind, metadata: Manifest) -> str:
    """Hand the fields of our POST over to our applies; returns the object's version after that.

    What a POST writes belongs to an update, and an apply that leaves such a field out does not
    remove it. So the first apply is preceded by a change of the owner, as client-go has it in
    ``csaupgrade``. It is conditional on the version that the apply is conditional on.
    """
    version = str(metadata["resourceVersion"])
    stored = cluster.get(kind, metadata["namespace"], metadata["name"])
    entries = copy.deepcopy(stored["metadata"].get("managedFields", [])) if stored else []
    ours = next((entry for entry in entries if _is_of_our_post(entry)), None)
    if ours is None:
        return version
    ours["operation"] = "Apply"
    for field in LEFT_TO_OTHERS.get(kind, ()):
        ours["fieldsV1"].get("f:spec", {}).pop(f"f:{field}", None)
    named = {key: metadata[key] for key in ("name", "namespace")}
    change = {**named, "resourceVersion": version, "managedFields": entries}
    return str(cluster.merge(kind, {"metadata": change})["metadata"]["resourceVersion"])


def _is_of_our_post(entry: Manifest) -> bool:
    whole = not entry.get("subresource")
    return whole and (entry["manager"], entry["operation"]) == (SPEC_MANAGER, "Update")
