"""What a new job has to say first: kept for a while, as if it were written.

A job says that it waits for its samplers, and seconds later that its first attempt has begun: two
writes, each of which costs the API server more than any object that is made for the job. So the
first one waits, for longer while many jobs are new; of a job that has begun by then it is never
written. Meanwhile the job is looked at as if it had been, so that no time begins anew with the next
look. A process that dies takes it along, as one that dies before the write does. What keeps a pod
from running is told at once: somebody may have to act.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from rl_contracts.spec.status import RLJobStatus
from rl_operator.apply import status_urgency
from rl_operator.kube.conditions import STARTING, find
from rl_operator.kube.kinds import Key
from rl_operator.state.snapshot import Job

SHORTEST, LONGEST = 0.4, 3.0
"""How long such a status waits, in ``operator.progressSeconds``."""
PER_SECOND = 5.0
"""At most, once more jobs are new than the shortest wait is enough for."""


def may_wait(stored: RLJobStatus, said: RLJobStatus) -> bool:
    """Whether this is a job's first status, and neither the job nor a pod of it needs anybody."""
    return status_urgency.of_new_job(stored, said) and not _has_trouble(said)


def _has_trouble(said: RLJobStatus) -> bool:
    """Whether a sampler's pod is known not to start: its image, its node, its container's end."""
    samplers = find(said.conditions, "SamplersReady")
    return samplers is not None and samplers.reason == STARTING and bool(samplers.message)


@dataclass(frozen=True, slots=True)
class _Kept:
    uid: str
    since: float
    most: int
    """New jobs at a time that looks have seen meanwhile."""
    stored: RLJobStatus
    said: RLJobStatus


class FirstWords:
    """First statuses that are not written yet. Looks at one job must not overlap."""

    def __init__(self, *, clock: Callable[[], float], seconds: float) -> None:
        """Prepare.

        Args:
            clock: monotonic seconds.
            seconds: between two looks at a job at work, by which waits are measured; 0: none waits.
        """
        self._clock, self._shortest, self._longest = clock, SHORTEST * seconds, LONGEST * seconds
        self._kept: dict[Key, _Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def recalled(self, key: Key, job: Job) -> Job:
        """A job as it would be if everything had been written that was said of it."""
        kept = self._kept.get(key)
        if kept is None:
            return job
        if kept.uid == job.meta.uid and kept.stored == job.status:
            return replace(job, status=kept.said)
        self.forget(key)  # another process, or this one, has written since
        return job

    def stored(self, key: Key, job: Job) -> RLJobStatus:
        """The status that is written, of a job as it was recalled."""
        kept = self._kept.get(key)
        return kept.stored if kept is not None else job.status

    def keep(self, key: Key, job: Job, said: RLJobStatus) -> float:
        """Keep what is said of a job as it was recalled, if that may wait.

        Returns:
            Seconds until it must be written; 0: now.
        """
        stored = self.stored(key, job)
        if not may_wait(stored, said):
            return 0.0
        now, kept = self._clock(), self._kept.get(key)
        since, most = (kept.since, kept.most) if kept is not None else (now, 0)
        most = max(most, len(self) + (kept is None))
        wait = min(max(self._shortest, most / PER_SECOND), self._longest)
        left = since + wait - now
        if left <= 0:
            return 0.0
        self._kept[key] = _Kept(job.meta.uid, since, most, stored, said)
        return left

    def forget(self, key: Key) -> None:
        """It is written, or the job is gone."""
        self._kept.pop(key, None)
