"""Writes that only shared pools need: labels, the finalizer, an empty Deployment."""

from __future__ import annotations

from dataclasses import dataclass

from rl_contracts.spec.resources import RLJobSpec
from rl_operator.kube import kinds, names
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.conditions import Stall
from rl_operator.kube.metadata import Meta
from rl_operator.kube.plan import Manifest
from rl_operator.pools import emptying
from rl_operator.pools.assignment import Allocation
from rl_operator.state import pool_ref
from rl_operator.state.snapshot import Job, PoolSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPools:
    """Applies an allocation."""

    cluster: Cluster

    def join(self, job: Job, spec: RLJobSpec) -> bool:
        """Label a job with the pool that it names; whether the label had to be written."""
        pool = pool_ref.of(spec)
        if not pool or job.meta.labels.get(names.POOL_LABEL) == pool:
            return False
        self._apply(kinds.RLJOB, job.meta, {"labels": {names.POOL_LABEL: pool}})
        return True

    def guard(self, pool: Meta, *, in_use: bool) -> bool:
        """Hold a pool in use by a finalizer; whether the finalizer had to be written.

        It is removed whoever added it, as that of a job: a restored backup has it.

        Raises:
            ApiConflictError: the pool has changed since it was observed.
        """
        if (names.IN_USE_FINALIZER in pool.finalizers) == in_use:
            return False
        if in_use:
            finalizers = {"finalizers": [names.IN_USE_FINALIZER]}
            self._apply(kinds.SAMPLER_POOL, pool, finalizers)
            return True
        others = [each for each in pool.finalizers if each != names.IN_USE_FINALIZER]
        metadata = {
            "name": pool.name,
            "namespace": pool.namespace,
            "uid": pool.uid,
            "resourceVersion": pool.resource_version,
            "finalizers": others,
        }
        self.cluster.merge(kinds.SAMPLER_POOL, {"metadata": metadata})
        return True

    def empty(self, snapshot: PoolSnapshot, *, allocation: Allocation) -> Stall | None:
        """Scale the Deployment to 0 pods; return what prevents that, if anything.

        Without a holder the new epoch is written, too: an operator that still takes the last job
        for the holder must not scale it up again.
        """
        epoch = (
            {names.ASSIGNMENT_ANNOTATION: str(allocation.epoch)}
            if allocation.holder is None
            else {}
        )
        return emptying.empty(self.cluster, snapshot, epoch)

    def create(self, manifest: Manifest) -> None:
        """Create the Deployment without pods: a late write of a paused operator starts none.

        Raises:
            ApiConflictError: another operator has created it since.
        """
        empty = {**manifest, "spec": {**manifest["spec"], "replicas": 0}}
        self.cluster.create(kinds.DEPLOYMENT, empty, manager=names.SPEC_MANAGER)

    def _apply(self, kind: kinds.Kind, to: Meta, metadata: Manifest) -> None:
        """Apply some metadata of an object whose other fields belong to others."""
        identity = {"name": to.name, "namespace": to.namespace, "uid": to.uid}
        manifest = {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": {**identity, **metadata},
        }
        self.cluster.apply(kind, manifest, manager=names.POOL_MANAGER)
