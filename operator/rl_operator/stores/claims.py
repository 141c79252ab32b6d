"""Things that one object at a time may have, each held by a Lease that its holder owns.

The Lease is made or taken over in one write, so that of two who ask one gets it; it goes with its
holder, and one whose holder has gone, or has let go, is free. Nothing is renewed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rl_operator.kube import kinds
from rl_operator.kube.api_errors import ApiConflictError
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.kinds import LEASE, Kind
from rl_operator.kube.metadata import Meta
from rl_operator.kube.names import PART_OF
from rl_operator.render.metadata import owned_by

Manifest = dict[str, Any]
HOLDERS = {kind.name: kind for kind in (kinds.RLJOB, kinds.SAMPLER_POOL)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """Takes and lets go of Leases."""

    cluster: Cluster

    def take(self, name: str, kind: Kind, holder: Meta) -> str:
        """Have the named thing, or learn who has it.

        Returns:
            Empty when the holder has it, else the name of the one that does.

        Raises:
            ApiConflictError: somebody else asked at the same time; look again.
        """
        there = self.cluster.get(LEASE, holder.namespace, name)
        if there is None:
            self.cluster.create(LEASE, _lease(name, kind, holder))
            return ""
        owner = _owner(there)
        if owner.get("uid") == holder.uid:
            return ""
        if self._is_there(holder.namespace, owner):
            return str(owner["name"])
        taken = _lease(name, kind, holder)
        taken["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"]
        self.cluster.replace(LEASE, taken)
        return ""

    def let_go(self, name: str, holder: Meta) -> None:
        """Free the named thing if the holder has it."""
        there = self.cluster.get(LEASE, holder.namespace, name)
        if there is None or _owner(there).get("uid") != holder.uid:
            return
        there["metadata"]["ownerReferences"] = []
        there["spec"] = {"holderIdentity": ""}
        try:
            self.cluster.replace(LEASE, there)
        except ApiConflictError:
            return  # somebody else has it now

    def _is_there(self, namespace: str, owner: Manifest) -> bool:
        kind = HOLDERS.get(owner.get("kind", ""))
        if kind is None:
            return False
        found = self.cluster.get(kind, namespace, owner["name"])
        return found is not None and found["metadata"]["uid"] == owner["uid"]


def _owner(lease: Manifest) -> Manifest:
    owners: list[Manifest] = lease["metadata"].get("ownerReferences") or [{}]
    return owners[0]


def _lease(name: str, kind: Kind, holder: Meta) -> Manifest:
    return {
        "apiVersion": LEASE.api_version,
        "kind": LEASE.name,
        "metadata": {
            "name": name,
            "namespace": holder.namespace,
            "labels": dict(PART_OF),
            "ownerReferences": owned_by(holder, kind),
        },
        "spec": {"holderIdentity": f"{holder.name}/{holder.uid}"},
    }
