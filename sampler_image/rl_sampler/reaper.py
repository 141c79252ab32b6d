"""Takes back lapsed claims while no trainer is there to do it; one agent at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from rl_contracts.documents.run import Run
from rl_contracts.stores.leases import REAPER
from rl_sampler.engine.assignment import Assignment
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.shared_stores import OUTAGES, SharedState

logger = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
TRAINER_SILENT_SECONDS = 20.0
"""A trainer beats every two seconds and reaps by itself."""
LEASE_SECONDS = 20.0


def is_needed(run: Run | None, *, now: float) -> bool:
    """Whether nobody else reaps; ``now`` is the store's time."""
    return (
        run is not None
        and run.outcome is None
        and abs(now - run.heartbeat_at) > TRAINER_SILENT_SECONDS
    )


class Reaper:
    """Between two trainers, samplers still die: their work goes on elsewhere."""

    def __init__(self, assignment: Assignment, *, shared: SharedState, serving: Serving) -> None:
        self._assignment, self._shared, self._serving = assignment, shared, serving

    async def run(self) -> None:
        """Look again and again until cancelled; outages are told by SharedState."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            with contextlib.suppress(*OUTAGES):
                await self._look()

    async def _look(self) -> None:
        stores, run = self._shared.stores, self._assignment.run
        now = await self._shared.ask(stores.mongo.now)
        if not is_needed(self._serving.run, now=now):
            return
        holder = self._assignment.sampler
        if await self._shared.ask(
            stores.leases.hold, run, REAPER, holder=holder, seconds=LEASE_SECONDS
        ):
            taken = await self._shared.ask(stores.tasks.reap, run)
            if taken:
                logger.warning("took back %d claims whose lease ran out", taken)
