"""Writes statuses: urgent changes at once, all others at most once per interval and object.

A job that starts has a dozen changes within seconds. Each status write costs the API server more
than any object that is created for the job, because it evaluates every rule of the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from rl_contracts.spec.pool_status import SamplerPoolStatus, ServedStatus
from rl_contracts.spec.status import (
    Condition,
    ProgressStatus,
    ResourcesStatus,
    RLJobStatus,
    SamplersStatus,
    WeightsStatus,
)
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.conditions import STORE_CONDITIONS, is_true
from rl_operator.kube.kinds import Key, Kind
from rl_operator.kube.metadata import Meta
from rl_operator.kube.names import STATUS_MANAGER

Status: TypeAlias = RLJobStatus | SamplerPoolStatus
BATCHED_CONDITIONS = (
    "TrainerReady",
    "SamplersReady",
    "PolicyPublished",
    "WeightsCurrent",
    "Available",
)
"""Conditions of single components; ``Ready``, phase and attempt summarize them and are urgent."""
URGENT_MESSAGES = ("Stalled", "Complete", "Failed", "PoolAssigned", "Admitted", "ScalingLimited")
"""Conditions whose message names a remedy or an outcome: a new message is urgent, too."""
POOL_COUNTERS = (
    *("replicas", "ready", "updated", "unavailable", "draining"),
    *("serving", "version", "target_version", "lag", "lagging"),
)


FIRST_STATUS_INTERVALS = 3.0
"""Intervals that a first status without news waits. Most pods of 100 jobs that start at once are
ready by then, so one write reports both: a pool took 1.1 to 1.8 writes, and 2.8 with one interval.
"""
STARTING_INTERVALS = 2.0
"""Intervals between two writes of a job that starts, when none is urgent. Most jobs of 100 that
start at once are running by then: a job took 3.0 writes instead of 3.9."""


class StatusWriter:
    """Applies whole statuses where they differ. For any thread; one thread per object at a time.

    A change that has to wait is not kept: the caller computes it again when the wait is over.
    """

    def __init__(self, cluster: Cluster, *, clock: Callable[[], float], seconds: float) -> None:
        """Write to ``cluster``.

        Args:
            cluster: the API server.
            clock: monotonic seconds.
            seconds: shortest interval between two writes of one object that are not urgent; a first
                status that is not urgent waits ``FIRST_STATUS_INTERVALS`` of these.
        """
        self._cluster, self._clock, self._seconds = cluster, clock, seconds
        self._written_at: dict[Key, float] = {}
        """Time of the last write; of an object that this process has not written yet, the time at
        which it first saw a change: a new leader batches its first changes, too."""

    def write(
        self, kind: Kind, meta: Meta, *, before: Status, after: Status, urgent: bool
    ) -> float | None:
        """Apply a status if it differs from the stored one and may be written now.

        Returns:
            None if the stored status equals ``after`` now, else the seconds after which the caller
            computes the status again.

        Raises:
            ApiConflictError: the object has changed or was deleted since it was observed.
        """
        if before == after:
            return None
        key = Key(kind.name, meta.namespace, meta.name)
        intervals = _intervals(before)
        since = self._written_at.setdefault(key, self._clock())
        wait = since + intervals * self._seconds - self._clock()
        if not urgent and wait > 0:
            return wait
        manifest = {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": {
                "name": meta.name,
                "namespace": meta.namespace,
                "resourceVersion": meta.resource_version,
            },
            "status": after.model_dump(mode="json", by_alias=True, exclude_none=True),
        }
        self._cluster.apply(kind, manifest, manager=STATUS_MANAGER, subresource="status")
        self._written_at[key] = self._clock()
        return None

    def forget(self, key: Key) -> None:
        """Drop what is kept of an object that was deleted."""
        self._written_at.pop(key, None)


def _intervals(before: Status) -> float:
    """How many intervals a change waits that is not urgent."""
    if before.observed_generation < 0:
        return FIRST_STATUS_INTERVALS
    is_starting = isinstance(before, RLJobStatus) and before.phase == "Starting"
    return STARTING_INTERVALS if is_starting else 1.0


def is_urgent_for_job(before: RLJobStatus, after: RLJobStatus) -> bool:
    """Whether somebody waits for a change of an RLJob's status: phase, attempt, conditions."""
    return _without_job_counters(before) != _without_job_counters(after) or (
        _urgent_part(before.conditions) != _urgent_part(after.conditions)
    )


def is_urgent_for_pool(
    before: SamplerPoolStatus, after: SamplerPoolStatus, *, has_trouble: bool = False
) -> bool:
    """Whether somebody waits for a change of a SamplerPool's status.

    The first status of a pool whose pods still start waits for them, so that one write reports
    both, unless something keeps the pods from being created or from running (``has_trouble``).
    """
    if before.observed_generation < 0:
        return has_trouble or _has_news(before, after)
    return _without_pool_counters(before) != _without_pool_counters(after) or (
        _urgent_part(_own_conditions(before)) != _urgent_part(_own_conditions(after))
    )


def _without_job_counters(status: RLJobStatus) -> RLJobStatus:
    trainer = status.trainer.model_copy(update={"ready": 0, "desired": 0, "summary": ""})
    batched: dict[str, object] = {
        "progress": ProgressStatus(),
        "weights": WeightsStatus(),
        "samplers": SamplersStatus(restarts=status.samplers.restarts),
        "trainer": trainer,
        "resources": ResourcesStatus(),
        "conditions": [],
    }
    return status.model_copy(update=batched)


def _without_pool_counters(status: SamplerPoolStatus) -> SamplerPoolStatus:
    served = [ServedStatus(job=run.job) for run in status.runs]
    batched: dict[str, object] = {
        **dict.fromkeys(POOL_COUNTERS, 0),
        "runs": served,
        "conditions": [],
    }
    return status.model_copy(update=batched)


def _own_conditions(pool: SamplerPoolStatus) -> list[Condition]:
    """A pool's conditions without reachability, which only explains why counters are missing."""
    return [condition for condition in pool.conditions if condition.type not in STORE_CONDITIONS]


def _has_news(before: SamplerPoolStatus, after: SamplerPoolStatus) -> bool:
    """Whether a pool's first status has more to say than that its pods start."""
    reports = any(condition.type in URGENT_MESSAGES for condition in after.conditions)
    return reports or is_true(after.conditions, "Ready") or _decisions(before) != _decisions(after)


def _decisions(pool: SamplerPoolStatus) -> tuple[object, ...]:
    """What the operator has decided for a pool and must find in its status afterwards."""
    return (
        *(pool.replaced, pool.last_scale, pool.assignment_epoch, pool.beside),
        pool.waiting_jobs,
    )


def _urgent_part(conditions: Sequence[Condition]) -> list[tuple[object, ...]]:
    return [
        (
            *(condition.type, condition.status, condition.reason, condition.observed_generation),
            condition.message if condition.type in URGENT_MESSAGES else "",
        )
        for condition in conditions
        if condition.type not in BATCHED_CONDITIONS
    ]
