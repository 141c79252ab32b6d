"""Delays the trainer's start until the minimum of samplers has registered."""

from __future__ import annotations

from dataclasses import dataclass

from rl_contracts.documents.sampler import Sampler
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
    """A group with fewer registered samplers than a start needs."""

    group: str
    registered: int
    minimum: int
    suspended: bool = False
    """``spec.suspend`` of its pool is true."""

    def __str__(self) -> str:
        why = " (its SamplerPool has spec.suspend)" if self.suspended else ""
        return f"{self.group} has {self.registered} of {self.minimum}{why}"


def applies(status: RLJobStatus) -> bool:
    """Whether the next attempt is a start: the first one, or the one after a suspension."""
    return status.attempt == 0 or attempt_records.halted(status)


def find_shortfalls(
    snapshot: JobSnapshot, spec: RLJobSpec, reading: Reading
) -> tuple[SamplerShortfall, ...]:
    """Groups with fewer registered samplers of the current spec than a start needs.

    A start needs ``autoscaling.minReplicas`` of each group, or ``spec.replicas`` of its pool where
    that is less. Before the first attempt it needs at least one sampler, because only a sampler
    reports which scorers exist.
    """
    if not spec.pooled or snapshot.job.suspended:
        return ()
    alive = {sampler.pod for sampler in current_samplers(snapshot, spec, reading)}
    declared = {pool.meta.name: _wanted(pool.spec) for pool in snapshot.pools if pool.spec}
    suspended = [pool.meta.name for pool in snapshot.pools if pool.spec and pool.spec.suspend]
    counts = []
    for group in spec.pooled:
        pool, least = names.pool_of(snapshot.key.name, group), group.template.autoscaling
        registered = sum(pod.pool == pool and pod.name in alive for pod in snapshot.sampler_pods())
        minimum = min(least.min_replicas, declared.get(pool, least.min_replicas))
        if group.pool_ref is not None and pool not in declared:
            registered = 0  # the pool does not serve this run
        counts.append(
            SamplerShortfall(
                group=group.name,
                registered=registered,
                minimum=minimum,
                suspended=pool in suspended,
            )
        )
    shortfalls = tuple(count for count in counts if count.registered < count.minimum)
    nobody = not any(count.registered for count in counts)
    if not shortfalls and nobody and snapshot.job.status.attempt == 0:
        return (SamplerShortfall(group=counts[0].group, registered=0, minimum=1),)
    return shortfalls


def current_samplers(
    snapshot: JobSnapshot, spec: RLJobSpec, reading: Reading
) -> tuple[Sampler, ...]:
    """Registered samplers that stay: their pods read the spec as it is now.

    The others sample and score by an earlier spec, and are replaced.
    """
    if spec.colocated:  # its pod reads the trainer's spec
        return reading.samplers
    job = snapshot.key.name
    read = {names.spec_config(job, spec, group.name) for group in spec.pooled}
    pods = snapshot.sampler_pods()
    staying = {pod.name for pod in pods if read & {*pod.specs} and not pod.deleting}
    return tuple(sampler for sampler in reading.samplers if sampler.pod in staying)


def _wanted(pool: SamplerPoolSpec) -> int:
    """Pods that a pool gets; before its queue has admitted any, those that it declares."""
    return min(pool.replicas, pool.admitted or pool.replicas)


def waits_since(snapshot: JobSnapshot) -> float | None:
    """When the wait for samplers began, seconds since 1970; None before it began."""
    assignments = (pool.given(snapshot.job) for pool in snapshot.pools)
    given = [assignment for assignment in assignments if assignment is not None]
    if snapshot.names_pool and not given:
        return None  # the wait for the shared pool comes first
    began = _began(snapshot)
    times = [began, *(parse_time(assignment.since) for assignment in given)]
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
    """The shortfalls in one line, e.g. ``main has 1 of 2, other has 0 of 1``."""
    return ", ".join(map(str, shortfalls))
