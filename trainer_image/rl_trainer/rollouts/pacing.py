"""Lets a step wait, within bounds, for open episodes that it would make too old."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from rl_trainer.algorithm.groups import Group
from rl_trainer.algorithm.pacing import awaited
from rl_trainer.context.job import Job

CHECK_SECONDS = 0.5
"""Between two checks of the open claims; each is two queries."""


class Pacing:
    """Waits of the steps of one attempt under ``offPolicy.onStale: Wait``.

    What may hold a step is a claim with a living lease, or a finished group that is not read yet.
    So a sampler that dies holds it for at most its lease, a task that is handed back not at all,
    and nothing holds it longer than ``maxWaitSeconds``.
    """

    def __init__(self, job: Job) -> None:
        """Pace a job's steps; nothing is sent before the first step has its groups."""
        self._job, self._off_policy = job, job.spec.algorithm.off_policy
        self._since: float | None = None
        self._checked, self._open = -math.inf, 0

    @property
    def seconds(self) -> float:
        """How long the step has waited."""
        return 0.0 if self._since is None else self._job.clock() - self._since

    def begin(self) -> None:
        """Begin another step."""
        self._since, self._checked, self._open = None, -math.inf, 0

    def holds(self, chosen: Sequence[Group], *, step: int, read: Collection[str]) -> bool:
        """Whether the step must wait, though it has all of its groups.

        Args:
            chosen: its groups.
            step: that it makes.
            read: ids of tasks whose groups were read.
        """
        limit = self._off_policy.pace_seconds
        if not limit:
            return False
        now = self._job.clock()
        self._since = now if self._since is None else self._since
        if now - self._since >= limit:
            return False
        if now - self._checked >= CHECK_SECONDS:
            self._checked = now
            self._open = self._awaited(chosen, step=step, read=read)
        return self._open > 0

    def describe(self) -> str:
        """What the step waits for."""
        return (
            f"waiting for {self._open} open groups that this step would make too old "
            f"({self.seconds:.0f} s of at most {self._off_policy.pace_seconds:.0f} s)"
        )

    def _awaited(self, chosen: Sequence[Group], *, step: int, read: Collection[str]) -> int:
        bound = self._off_policy.max_staleness
        tasks = self._job.stores.tasks.unread(self._job.run, before_step=step - bound)
        return awaited(
            [task.policy_step for task in tasks if task.id not in read],
            chosen,
            step=step,
            max_staleness=bound,
        )
