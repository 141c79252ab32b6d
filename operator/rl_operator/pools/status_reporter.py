"""Reports on a pool: writes its status and records its events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rl_contracts.spec.pool_status import SamplerPoolStatus, ScaleStatus
from rl_operator.apply.requeue import RESYNC_SECONDS
from rl_operator.apply.status_writer import StatusWriter, is_urgent_for_pool
from rl_operator.kube import kinds
from rl_operator.kube.conditions import Stall
from rl_operator.pools import shared_status, status
from rl_operator.pools.assignment import Allocation
from rl_operator.pools.status import NOTHING_LOST, Lost, Scaled
from rl_operator.process.events import EventNote, EventRecorder
from rl_operator.state.progress import Reading
from rl_operator.state.snapshot import PoolSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatusReporter:
    """Writes pool statuses where they have changed."""

    statuses: StatusWriter
    events: EventRecorder
    now: Callable[[], float]
    """Seconds since 1970."""

    def report(
        self,
        snapshot: PoolSnapshot,
        reading: Reading,
        stall: Stall | None,
        scaled: Scaled,
        *,
        lost: Lost = NOTHING_LOST,
        allocation: Allocation | None = None,
        others: Sequence[Reading] = (),
    ) -> float:
        """Write the status where it has changed; the arguments are those of ``pool_status``.

        Returns:
            Seconds until the status must be computed again.

        Raises:
            ApiConflictError: the pool has changed or was deleted since it was observed.
        """
        after = status.compute(
            snapshot,
            reading,
            stall=stall,
            replicas=min(scaled.replicas, snapshot.size) if snapshot.pool.spec else 0,
            lost=lost,
            scaled=scaled,
            allocation=allocation,
            others=others,
            now=self.now(),
        )
        wait = self._write(snapshot, after, scaled)
        notes = _notes(snapshot.pool.status, after, stall, allocation) if wait is None else []
        if scaled.record is not None:
            notes.append(_scaled(scaled.record))
        self.events.record(snapshot.pool.meta, kinds.SAMPLER_POOL, notes)
        return RESYNC_SECONDS if wait is None else wait

    def _write(
        self, snapshot: PoolSnapshot, after: SamplerPoolStatus, scaled: Scaled
    ) -> float | None:
        before, meta = snapshot.pool.status, snapshot.pool.meta
        if scaled.resource_version:
            meta = replace(meta, resource_version=scaled.resource_version)
        urgent = is_urgent_for_pool(before, after, has_trouble=bool(status.trouble(snapshot)))
        return self.statuses.write(
            kinds.SAMPLER_POOL, meta, before=before, after=after, urgent=urgent
        )


def _notes(
    before: SamplerPoolStatus,
    after: SamplerPoolStatus,
    stall: Stall | None,
    allocation: Allocation | None,
) -> list[EventNote]:
    """The Events that report a change of a status."""
    notes = []
    if stall is not None and before != after:
        notes.append(EventNote(stall.reason, stall.message, "Warning"))
    if allocation is not None:
        notes += shared_status.notes(before, after)
    return notes


def _scaled(record: ScaleStatus) -> EventNote:
    change = f"From {record.before} to {record.after} pods ({record.reason}). {record.message}"
    return EventNote("Scaled", change.strip())
