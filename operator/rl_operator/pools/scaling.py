"""Applies the autoscaler's advice: its observations, its evidence, one write to the pool."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rl_contracts.documents.run import Run
from rl_contracts.documents.sampler import Sampler
from rl_contracts.documents.step_metrics import PACE
from rl_contracts.spec.pool_status import ScaleStatus
from rl_contracts.spec.resources import RLJobSpec, SamplerPoolSpec
from rl_operator.attempts import start_gate
from rl_operator.kube import kinds
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.kinds import Key
from rl_operator.kube.timestamps import format_time
from rl_operator.pools import autoscaler
from rl_operator.pools.autoscaler import Advice, Evidence, Observation
from rl_operator.pools.status import Scaled, serving_of
from rl_operator.state.progress import Reading
from rl_operator.state.snapshot import PoolSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolScaler:
    """Scales pools of mode ``Builtin``; a new process gathers new evidence."""

    cluster: Cluster
    now: Callable[[], float]
    """Seconds since 1970."""
    evidence: dict[Key, tuple[str, Evidence | None]] = field(default_factory=dict)
    """By pool: uid of the pool and of the job that has it, and the evidence for these."""

    def forget(self, key: Key) -> None:
        """Drop the evidence of a pool."""
        self.evidence.pop(key, None)

    def scale(
        self, snapshot: PoolSnapshot, spec: SamplerPoolSpec, job: RLJobSpec, reading: Reading
    ) -> Scaled:
        """Observe a pool, and change its size where that is due."""
        wanted, served = spec.template.autoscaling, _served(snapshot)
        unchanged = Scaled(replicas=spec.replicas)
        away = any(sampler.unavailable for sampler in reading.samplers)
        if wanted.mode != "Builtin" or not reading.known or away:
            # An outage of the store or of a scorer must not count as evidence.
            self.forget(snapshot.key)
            return unchanged
        seen = observation(snapshot, spec, job, reading, now=self.now())
        whose, before = self.evidence.get(snapshot.key, ("", None))
        evidence = autoscaler.observe(before if whose == served else None, seen)
        self.evidence[snapshot.key] = (served, evidence)
        advice = autoscaler.advise(seen, evidence, wanted, history(snapshot))
        if advice.replicas == spec.replicas:
            return Scaled(replicas=spec.replicas, limited=advice.limited)
        return self._change(snapshot, spec, advice, evidence)

    def _change(
        self,
        snapshot: PoolSnapshot,
        spec: SamplerPoolSpec,
        advice: Advice,
        evidence: Evidence | None,
    ) -> Scaled:
        meta = snapshot.pool.meta
        # At the observed version: a `kubectl scale` in between is a conflict and is seen first.
        metadata = {
            "name": meta.name,
            "namespace": meta.namespace,
            "resourceVersion": meta.resource_version,
        }
        change = {"metadata": metadata, "spec": {"replicas": advice.replicas}}
        stored = self.cluster.merge(kinds.SAMPLER_POOL, change)
        record = ScaleStatus(
            time=format_time(self.now()),
            before=spec.replicas,
            after=advice.replicas,
            reason=advice.reason,
            message=advice.message,
            tokens_per_second=round(evidence.tokens_per_second, 1) if evidence else 0.0,
        )
        return Scaled(
            replicas=advice.replicas,
            record=record,
            resource_version=stored["metadata"]["resourceVersion"],
            limited=advice.limited,
        )


def history(snapshot: PoolSnapshot) -> list[ScaleStatus]:
    """Changes of a pool's size since it serves its present run."""
    given = snapshot.pool.status.assignment
    since = given.since if given is not None else ""
    return [record for record in snapshot.pool.status.last_scale if record.time >= since]


def _served(snapshot: PoolSnapshot) -> str:
    given = snapshot.pool.status.assignment
    return f"{snapshot.pool.meta.uid}/{given.uid if given is not None else ''}"


def observation(
    snapshot: PoolSnapshot, spec: SamplerPoolSpec, job: RLJobSpec, reading: Reading, *, now: float
) -> Observation:
    """The autoscaler's input: the state of a pool and of its run."""
    serving: list[Sampler] = serving_of(snapshot, reading)
    run: Run | None = reading.run
    latest = run.latest if run else None
    alive = max(run.heartbeat_at, run.progress_at) if run else reading.now
    # A trainer that is about to start waits for the samplers, however old the last heartbeat of the
    # run's trainer is: from before a suspension, or of another job that had the run.
    starts = snapshot.job is not None and start_gate.applies(snapshot.job.status)
    slack = job.algorithm.off_policy.max_staleness - (latest.staleness_max if latest else 0)
    return Observation(
        now=now,
        replicas=spec.replicas,
        serving=len(serving),
        running_groups=sum(sampler.groups_running for sampler in serving),
        slots=len(serving) * spec.template.max_concurrent_groups,
        backlog=reading.backlog,
        tokens_per_second=sum(sampler.tokens_per_second for sampler in serving),
        step=latest.step if latest else 0,
        # More samplers do not shorten a wait for the oldest episodes.
        wait_seconds=latest.wait_seconds - latest.seconds.get(PACE, 0.0) if latest else 0.0,
        train_seconds=latest.train_seconds if latest else 0.0,
        staleness_slack=slack,
        trainer_silent_seconds=0.0 if starts else max(0.0, reading.now - alive),
    )
