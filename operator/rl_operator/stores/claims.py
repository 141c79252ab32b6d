"""Claims: a Lease for each thing that only one object at a time may have; its holder owns it.

One write creates the Lease or takes it over, so only one of two concurrent claimants succeeds.
A Lease is deleted with its holder. It is free if its holder no longer exists or has released it.
Nothing is renewed.
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
    """Takes and releases claims."""

    cluster: Cluster

    def take(self, name: str, kind: Kind, holder: Meta) -> str:
        """Claim the named thing.

        Returns:
            Empty if the claim succeeded, else the name of the object that holds it.

        Raises:
            ApiConflictError: another object claimed it at the same time; try again.
        """
        lease = self.cluster.get(LEASE, holder.namespace, name)
        if lease is None:
            self.cluster.create(LEASE, _lease(name, kind, holder))
            return ""
        owner = _owner(lease)
        if owner.get("uid") == holder.uid:
            return ""
        if self._exists(holder.namespace, owner):
            return str(owner["name"])
        taken = _lease(name, kind, holder)
        taken["metadata"]["resourceVersion"] = lease["metadata"]["resourceVersion"]
        self.cluster.replace(LEASE, taken)
        return ""

    def holder(self, name: str, namespace: str) -> str:
        """UID of the object that has the named thing; empty if none has."""
        lease = self.cluster.get(LEASE, namespace, name)
        return "" if lease is None else str(_owner(lease).get("uid", ""))

    def release(self, name: str, holder: Meta) -> None:
        """Release the named thing if the holder has it."""
        lease = self.cluster.get(LEASE, holder.namespace, name)
        if lease is None or _owner(lease).get("uid") != holder.uid:
            return
        lease["metadata"]["ownerReferences"] = []
        lease["spec"] = {"holderIdentity": ""}
        try:
            self.cluster.replace(LEASE, lease)
        except ApiConflictError:
            return  # another object has it now

    def _exists(self, namespace: str, owner: Manifest) -> bool:
        kind = HOLDERS.get(owner.get("kind", ""))
        if kind is None:
            return False
        holder = self.cluster.get(kind, namespace, owner["name"])
        return holder is not None and holder["metadata"]["uid"] == owner["uid"]


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
