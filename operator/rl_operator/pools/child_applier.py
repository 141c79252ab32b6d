"""Applies the objects of a pool: its Deployment, its disruption budget and its policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rl_contracts.spec.resources import SamplerPoolSpec
from rl_operator.apply.applier import Applier
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.conditions import Stall, is_true
from rl_operator.kube.metadata import Meta
from rl_operator.kube.plan import Manifest, Wanted
from rl_operator.kube.settings import Images
from rl_operator.render import agents, deployment, objects
from rl_operator.render.shared_engine import PORT_STEP
from rl_operator.state import observe
from rl_operator.state.snapshot import Job, Pool, PoolSnapshot

UNGUARDED_SECONDS = 30.0
"""A budget is made with the first look at a ready pod: those that are not may go at any time, so
that nothing of a job's start waits for it. A pool that is older has one whatever its pods are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChildApplier:
    """Applies pools' objects where something differs."""

    cluster: Cluster
    applier: Applier
    images: Images
    now: Callable[[], float]
    """Seconds since 1970."""

    def make(
        self,
        snapshot: PoolSnapshot,
        spec: SamplerPoolSpec,
        job: Job,
        replicas: int,
    ) -> Stall | None:
        """Make what is not in order; what stands in the way, if anything does."""
        assert job.spec is not None
        meta, guarded = snapshot.pool.meta, self.unguarded_seconds(snapshot) == 0
        source = (
            guarded,
            *(meta.uid, meta.generation, replicas, snapshot.pool.status.assignment_epoch),
            *((one.meta.uid, one.meta.run, one.meta.generation) for one in snapshot.served),
            *(child.declared for child in snapshot.children.values()),
        )
        if self.applier.rests(snapshot.key, source):
            return None
        pods = self.rendered(snapshot, spec, job, replicas)
        wanted = [Wanted(manifest=pods), *_beside(meta, spec, job, guarded=guarded)]
        dropped = objects.of_pool_not_wanted(meta, spec)
        made = self.applier.make(
            snapshot.key,
            wanted=wanted,
            unwanted=observe.named(self.cluster, snapshot.key, dropped),
            observed=snapshot.children,
            owner_uid=meta.uid,
            settled=not spec.shared and _is_settled(snapshot.pool),
        )
        if not made.done and made.stall is None:
            self.applier.rested(snapshot.key, source)
        return made.stall

    def unguarded_seconds(self, snapshot: PoolSnapshot) -> float:
        """For how long a pool has no budget as long as no pod is ready; 0: it is to have one."""
        if any(pod.ready for pod in snapshot.pods):
            return 0.0
        return max(0.0, snapshot.pool.meta.created_at + UNGUARDED_SECONDS - self.now())

    def rendered(
        self, snapshot: PoolSnapshot, spec: SamplerPoolSpec, job: Job, replicas: int
    ) -> Manifest:
        """The Deployment of a pool that serves a job with so many pods."""
        assert job.spec is not None
        return deployment.render(
            snapshot.pool.meta,
            spec,
            job=job.meta,
            job_spec=job.spec,
            replicas=replicas,
            images=self.images,
            epoch=snapshot.pool.status.assignment_epoch,
            beside=[(one.meta, one.spec) for one in snapshot.beside if one.spec is not None],
        )


def _beside(meta: Meta, spec: SamplerPoolSpec, job: Job, *, guarded: bool) -> list[Wanted]:
    """The small objects that go with a pool's Deployment, as far as it wants them."""
    found = []
    if spec.template.disruption.pdb and guarded:
        budget = objects.disruption_budget(
            meta,
            job=job.meta.name,
            run=job.meta.run,
            max_unavailable=spec.template.disruption.max_unavailable,
            shared=spec.shared,
        )
        found.append(Wanted(manifest=budget))
    if spec.max_runs > 1 and spec.network_policy != "None":
        ports = [agents.PORT + PORT_STEP * index for index in range(spec.max_runs)]
        found.append(Wanted(manifest=objects.pool_policy(meta, ports=ports)))
    return found


def _is_settled(pool: Pool) -> bool:
    """Whether the status says that everything was made of this spec."""
    told = pool.status.observed_generation == pool.meta.generation
    return told and is_true(pool.status.conditions, "Ready")
