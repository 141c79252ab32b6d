"""Polls the run document for the published policy and the trainer's step."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from rl_contracts.documents.run import FollowedRun
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.shared_stores import OUTAGES, SharedStores

POLL_SECONDS, MAX_POLL_SECONDS = 0.3, 1.0
IDLE_SHARE = 0.1
"""Of the time since the run last changed: so much later may the next change be seen."""
DISOWNED = (
    "policy version {version}, which the engine serves, was published after the backup from which "
    "the run document was restored; tasks are claimed again once another version is served"
)


def is_older(run: FollowedRun, than: FollowedRun) -> bool:
    """Whether ``run`` is an earlier state of a run.

    Epochs never go back, even when the store is restored; within one, none of these numbers does.
    """
    if run.epoch != than.epoch:
        return run.epoch < than.epoch

    def numbers(state: FollowedRun) -> tuple[int, int, int]:
        return state.step, state.last_version, state.policy.version if state.policy else 0

    return any(new < old for new, old in zip(numbers(run), numbers(than), strict=True))


class RunWatch:
    """Keeps ``serving.run`` fresh.

    Reads of different members or routers of a store may go back in time: each sees its own majority
    commit point (https://www.mongodb.com/docs/manual/core/causal-consistency-read-write-concerns/).
    So an older state of the run is believed only if a write that changes nothing shows it, too:
    then the store was restored from a backup.
    """

    def __init__(
        self,
        shared: SharedStores,
        *,
        run: str,
        serving: Serving,
        problems: Problems,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shared, self._run = shared, run
        self._serving, self._problems = serving, problems
        self._clock = clock
        self._changed_at = clock()
        """When the run last changed, or was read for the first time."""

    async def run(self) -> None:
        """Poll until cancelled; in an outage the last state stays."""
        while True:
            with contextlib.suppress(*OUTAGES):  # reported by SharedStores
                await self._read()
            await self._serving.run_asked(seconds=self._interval())

    def _interval(self) -> float:
        """Seconds between two reads: longer while nothing changes."""
        unchanged = self._clock() - self._changed_at
        return min(MAX_POLL_SECONDS, max(POLL_SECONDS, IDLE_SHARE * unchanged))

    async def _read(self) -> None:
        runs, before = self._shared.stores.runs, self._serving.run
        run = await self._shared.call(runs.follow, self._run)
        if run is not None and before is not None and is_older(run, before):
            run = await self._shared.call(runs.confirm, self._run)
        self._note(run)

    def _note(self, run: FollowedRun | None) -> None:
        if run is None:
            self._problems.note("run", f"run {self._run} does not exist yet")
            return
        self._problems.clear("run")
        before, now = self._serving.run, self._clock()
        self._serving.note_run(run)
        disowned = self._serving.disowned
        if disowned is not None and disowned == self._serving.policy:
            self._problems.note("timeline", DISOWNED.format(version=disowned.version))
        else:
            self._problems.clear("timeline")
        if before is None or _news(before) != _news(run):
            self._changed_at = now
            self._serving.changed()


def _news(run: FollowedRun) -> tuple[object, ...]:
    """What may open a queue or fill it."""
    return run.epoch, run.policy, run.step, run.handed_out, run.outcome
