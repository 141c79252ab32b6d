"""Reports on a job: writes its status, records its events and enqueues its pools."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from rl_contracts.spec.status import RLJobStatus
from rl_operator.apply.requeue import RESYNC_SECONDS
from rl_operator.apply.status_writer import StatusWriter, is_urgent_for_job
from rl_operator.kube import kinds, logs
from rl_operator.kube.kinds import Key
from rl_operator.process.events import EventRecorder, of_change
from rl_operator.state import pool_ref
from rl_operator.state.snapshot import JobSnapshot
from rl_operator.status import job_conditions
from rl_operator.status.status_input import StatusInput

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What a report has come to."""

    wait: float
    """Seconds until the status must be computed again."""
    changed: bool
    """The status differs from the one that was stored before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatusReporter:
    """Writes job statuses where they have changed."""

    statuses: StatusWriter
    events: EventRecorder
    enqueue: Callable[[Key], None]
    """Asks for another object to be reconciled."""

    def report(self, status_input: StatusInput) -> Reported:
        """Compute the status and write it if it has changed and may be written now.

        Raises:
            ApiConflictError: the job has changed or was deleted since it was observed.
        """
        snapshot, job = status_input.snapshot, status_input.snapshot.job
        before, after = job.status, job_conditions.compute(status_input)
        urgent = is_urgent_for_job(before, after)
        wait = self.statuses.write(kinds.RLJOB, job.meta, before=before, after=after, urgent=urgent)
        if wait is not None:
            return Reported(wait=wait, changed=True)
        if before.observed_generation != after.observed_generation:
            self._enqueue_pools(snapshot)
        self.events.record(job.meta, kinds.RLJOB, of_change(before, after))
        _log(before, after)
        return Reported(wait=RESYNC_SECONDS, changed=before != after)

    def _enqueue_pools(self, snapshot: JobSnapshot) -> None:
        named = pool_ref.of(snapshot.job.spec)
        names = {pool.meta.name for pool in snapshot.pools} | ({named} if named else set())
        for name in names:
            self.enqueue(Key(kinds.SAMPLER_POOL.name, snapshot.key.namespace, name))


def _log(before: RLJobStatus, after: RLJobStatus) -> None:
    if (before.phase, before.attempt) != (after.phase, after.attempt):
        logs.note(attempt=after.attempt)
        log.info("phase %s", after.phase, extra={"phase": after.phase})
