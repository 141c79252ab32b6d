"""Applies the objects of a pool: its Deployment, its disruption budget and its policy."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from rl_contracts.spec.resources import SamplerPoolSpec
from rl_operator.apply.applier import Applier
from rl_operator.kube import kinds
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.conditions import Stall, is_true
from rl_operator.kube.metadata import Meta
from rl_operator.kube.plan import Manifest, Wanted
from rl_operator.kube.settings import Images
from rl_operator.pools.emptying import empty_own_pods, keepers_beside, own_children
from rl_operator.render import objects
from rl_operator.render.pods import sampler_image
from rl_operator.render.samplers import agents, deployment, own_pods, sandboxes
from rl_operator.render.samplers.shared_engine import PORT_STEP
from rl_operator.state import observe
from rl_operator.state.snapshot import Job, Pool, PoolSnapshot

UNGUARDED_SECONDS = 30.0
"""A budget is created once a pod is ready: unready pods may be evicted at any time, and so no start
of a job waits for its budget. A pool that is older than this has one in any case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChildApplier:
    """Applies a pool's objects that differ from what is wanted."""

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
        *,
        unserved: bool,
    ) -> Stall | None:
        """Apply and delete objects as the pool wants; return what prevents that, if anything.

        ``unserved``: its runs have no policy, and no pod is ready.

        Raises:
            ApiHookError: a webhook does not answer. What stops pods is done all the same.
        """
        assert job.spec is not None
        meta, guarded = snapshot.pool.meta, self.unguarded_seconds(snapshot) == 0
        source = (
            *(guarded, unserved),
            *(meta.uid, meta.generation, replicas, snapshot.pool.status.assignment_epoch),
            *((run.meta.uid, run.meta.run, run.meta.generation) for run in snapshot.served),
            *(child.declared for child in snapshot.children.values()),
        )
        if self.applier.rests(snapshot.key, source):
            return None
        pods = self.rendered(snapshot, spec, job, replicas, unserved=unserved)
        own = [] if spec.shared else self._own_pods(snapshot, spec, job, replicas, unserved)
        wanted = [
            *(_wanted(manifest) for manifest in (pods, *own)),
            *_beside(meta, spec, job, guarded=guarded),
        ]
        ours = sampler_image(spec.template, self.images)
        kept = own_pods.names_in(meta.name, job.spec, ours=ours)
        keeper = own_pods.keeper(job.spec).name
        claims = {each.reference for each in wanted if each.kind == kinds.SANDBOX_CLAIM}
        empty_own_pods(self.cluster, snapshot, but={*((keeper, name) for name in kept), *claims})
        dropped = objects.of_pool_not_wanted(meta, spec, runs=len(snapshot.served))
        if had := [child.meta.name for child in keepers_beside(snapshot)]:
            dropped += own_pods.not_wanted(meta, job.spec, ours=ours, had=had)
        made = self.applier.make(
            snapshot.key,
            wanted=wanted,
            unwanted=observe.named(self.cluster, snapshot.key, dropped),
            observed=snapshot.children,
            owner_uid=meta.uid,
            begun=snapshot.pool.status.observed_generation >= 0,
            settled=not spec.shared and _is_settled(snapshot.pool),
        )
        if made.outage is not None:
            raise made.outage
        if not made.done and made.stall is None:
            self.applier.rested(snapshot.key, source)
        return made.stall

    def unguarded_seconds(self, snapshot: PoolSnapshot) -> float:
        """Seconds until a pool without a ready pod gets its budget; 0: it should have one now."""
        if any(pod.ready for pod in snapshot.pods):
            return 0.0
        return max(0.0, snapshot.pool.meta.created_at + UNGUARDED_SECONDS - self.now())

    def rendered(
        self,
        snapshot: PoolSnapshot,
        spec: SamplerPoolSpec,
        job: Job,
        replicas: int,
        *,
        unserved: bool = False,
    ) -> Manifest:
        """The Deployment of a pool that serves a job with ``replicas`` pods."""
        assert job.spec is not None
        return deployment.render(
            snapshot.pool.meta,
            spec,
            job=job.meta,
            job_spec=job.spec,
            replicas=replicas,
            images=self.images,
            epoch=snapshot.pool.status.assignment_epoch,
            beside=[
                (other.meta, other.spec) for other in snapshot.beside if other.spec is not None
            ],
            unserved=unserved,
        )

    def _own_pods(
        self,
        snapshot: PoolSnapshot,
        spec: SamplerPoolSpec,
        job: Job,
        replicas: int,
        unserved: bool,
    ) -> list[Manifest]:
        """Objects of the pods of programs or environments for these samplers, if there are any."""
        assert job.spec is not None
        meta = snapshot.pool.meta
        made = own_pods.beside(
            meta,
            spec,
            job=job.meta,
            job_spec=job.spec,
            size=replicas,
            images=self.images,
            unserved=unserved,
        )
        claims = [each for each in made if each["kind"] == kinds.SANDBOX_CLAIM.name]
        others = [each for each in made if each["kind"] != kinds.SANDBOX_CLAIM.name]
        existing = [
            child.meta.name
            for child in own_children(snapshot)
            if child.kind == kinds.SANDBOX_CLAIM.name and child.meta.deleted_at is None
        ]
        return others + sandboxes.named(claims, existing=existing, token=_token)


def _token() -> str:
    return secrets.token_hex(3)


def _wanted(manifest: Manifest) -> Wanted:
    """Claims serve one episode: they are replaced, never changed."""
    return Wanted(manifest=manifest, immutable=manifest["kind"] == kinds.SANDBOX_CLAIM.name)


def _beside(meta: Meta, spec: SamplerPoolSpec, job: Job, *, guarded: bool) -> list[Wanted]:
    """The pool's disruption budget and network policy, if it wants them."""
    objects_wanted: list[Wanted] = []
    if spec.template.disruption.pdb and guarded:
        budget = objects.disruption_budget(
            meta,
            job=job.meta.name,
            run=job.meta.run,
            max_unavailable=spec.template.disruption.max_unavailable,
            shared=spec.shared,
        )
        objects_wanted.append(Wanted(manifest=budget))
    if spec.max_runs > 1 and spec.network_policy != "None":
        ports = [agents.PORT + PORT_STEP * index for index in range(spec.max_runs)]
        objects_wanted.append(Wanted(manifest=objects.pool_policy(meta, ports=ports)))
    return objects_wanted


def _is_settled(pool: Pool) -> bool:
    """Whether the status is ready for this generation: everything was applied from its spec."""
    current = pool.status.observed_generation == pool.meta.generation
    return current and is_true(pool.status.conditions, "Ready")
