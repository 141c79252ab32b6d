"""Writes of a shared pool that no other pool has: its finalizer, and its Deployment's turns."""

from __future__ import annotations

from dataclasses import dataclass

from rl_contracts.spec.resources import RLJobSpec
from rl_operator.kube import kinds, names
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.metadata import Meta
from rl_operator.kube.plan import Manifest
from rl_operator.pools.assignment import Allocation
from rl_operator.render import deployment
from rl_operator.state import pool_ref
from rl_operator.state.snapshot import Job, PoolSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPools:
    """Carries an assignment out."""

    cluster: Cluster

    def join(self, job: Job, spec: RLJobSpec) -> bool:
        """Label a job as one that names a pool, by which the pool finds it; whether it was not."""
        pool = pool_ref.of(spec)
        if not pool or job.meta.labels.get(names.POOL_LABEL) == pool:
            return False
        self._apply(kinds.RLJOB, job.meta, {"labels": {names.POOL_LABEL: pool}})
        return True

    def guard(self, pool: Meta, *, in_use: bool) -> bool:
        """Let the pool go only when it serves nobody; whether anything was to be written."""
        if (names.IN_USE_FINALIZER in pool.finalizers) == in_use:
            return False
        finalizers = [names.IN_USE_FINALIZER] if in_use else []
        self._apply(kinds.SAMPLER_POOL, pool, {"finalizers": finalizers})
        return True

    def empty(self, snapshot: PoolSnapshot, *, allocation: Allocation) -> None:
        """Take the Deployment to 0 pods, whatever its template says.

        Without a holder it learns the epoch, so that nobody who takes the last one for the holder
        still may bring it up again.
        """
        there = snapshot.children[(kinds.DEPLOYMENT.name, snapshot.key.name)].meta
        epoch = (
            {names.ASSIGNMENT_ANNOTATION: str(allocation.epoch)}
            if allocation.holder is None
            else {}
        )
        self.cluster.merge(kinds.DEPLOYMENT, deployment.emptied(there, epoch))

    def create(self, manifest: Manifest) -> None:
        """Create the Deployment without pods: a late write of a paused operator starts none."""
        empty = {**manifest, "spec": {**manifest["spec"], "replicas": 0}}
        self.cluster.apply(kinds.DEPLOYMENT, empty, manager=names.SPEC_MANAGER)

    def _apply(self, kind: kinds.Kind, to: Meta, metadata: Manifest) -> None:
        """Own these metadata of an object of which others write the rest."""
        identity = {"name": to.name, "namespace": to.namespace, "uid": to.uid}
        manifest = {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": {**identity, **metadata},
        }
        self.cluster.apply(kind, manifest, manager=names.POOL_MANAGER)
