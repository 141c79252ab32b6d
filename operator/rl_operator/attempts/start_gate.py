"""Trainer and samplers start together: no trainer before the minimum of samplers has registered."""

from __future__ import annotations

from dataclasses import dataclass

from rl_contracts.spec.resources import RLJobSpec, SamplerPoolSpec
from rl_contracts.spec.status import RLJobStatus
from rl_operator.kube import names
from rl_operator.kube.conditions import find
from rl_operator.kube.timestamps import parse_time
from rl_operator.state import attempt_records
from rl_operator.state.progress import Reading
from rl_operator.state.snapshot import JobSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerShortfall:
    """A group of samplers that has too few of them."""

    group: str
    registered: int
    minimum: int
    suspended: bool = False
    """Somebody has suspended its pool."""

    def __str__(self) -> str:
        why = " (its SamplerPool has spec.suspend)" if self.suspended else ""
        return f"{self.group} has {self.registered} of {self.minimum}{why}"


def applies(status: RLJobStatus) -> bool:
    """Whether the next attempt is a start: the first one, or the one after a suspension."""
    return status.attempt == 0 or attempt_records.halted(status)


def find_shortfalls(
    snapshot: JobSnapshot, spec: RLJobSpec, reading: Reading
) -> tuple[SamplerShortfall, ...]:
    """Groups with fewer samplers than a start asks for.

    That is ``autoscaling.minReplicas`` of each group, or what ``/scale`` says where that is less;
    before the first attempt one sampler at least, for it alone tells which scorers there are.
    """
    if not spec.samplers or snapshot.job.suspended:
        return ()
    alive = {sampler.pod for sampler in reading.samplers}
    declared = {pool.meta.name: _wanted(pool.spec) for pool in snapshot.pools if pool.spec}
    suspended = [one.meta.name for one in snapshot.pools if one.spec and one.spec.suspend]
    found = []
    for group in spec.samplers:
        pool, least = names.pool_of(snapshot.key.name, group), group.template.autoscaling
        registered = sum(
            pod.pool == pool and pod.name in alive and not pod.deleting
            for pod in snapshot.sampler_pods()
        )
        minimum = min(least.min_replicas, declared.get(pool, least.min_replicas))
        if group.pool_ref is not None and pool not in declared:
            registered = 0  # the pool is not the run's, or not any more
        found.append(
            SamplerShortfall(
                group=group.name,
                registered=registered,
                minimum=minimum,
                suspended=pool in suspended,
            )
        )
    shortfalls = tuple(one for one in found if one.registered < one.minimum)
    nobody = not any(one.registered for one in found)
    if not shortfalls and nobody and snapshot.job.status.attempt == 0:
        return (SamplerShortfall(group=found[0].group, registered=0, minimum=1),)
    return shortfalls


def _wanted(pool: SamplerPoolSpec) -> int:
    """Pods of a pool once its job is at work; before that its queue has told it of none."""
    return min(pool.replicas, pool.admitted or pool.replicas)


def waits_since(snapshot: JobSnapshot) -> float | None:
    """When the wait for samplers began, seconds since 1970; None before it has."""
    told = (pool.given(snapshot.job) for pool in snapshot.pools)
    given = [one for one in told if one is not None]
    if snapshot.names_pool and not given:
        return None  # the wait for the shared pool comes first
    began = _began(snapshot)
    times = [began, *(parse_time(one.since) for one in given)]
    return max((time_ for time_ in times if time_ is not None), default=None)


def _began(snapshot: JobSnapshot) -> float | None:
    status = snapshot.job.status
    if status.attempt == 0:
        own = (pool.meta.created_at for pool in snapshot.pools if not pool.status.assignment)
        made, admitted = min(own, default=None), find(status.conditions, "Admitted")
        if made is None or admitted is None:
            return made
        return max(made, parse_time(admitted.last_transition_time) or made)
    operation = status.operation
    if operation is None or operation.kind != "Start":
        return None
    return parse_time(operation.started_time)


def describe(shortfalls: tuple[SamplerShortfall, ...]) -> str:
    """What is missing, e.g. ``main has 1 of 2, other has 0 of 1``."""
    return ", ".join(map(str, shortfalls))
