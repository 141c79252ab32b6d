"""Takes back expired claims while no trainer does it; one agent of the run at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from rl_contracts.documents.run import FollowedRun
from rl_contracts.stores.leases import REAPER
from rl_sampler.engine.assignment import Assignment
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.shared_stores import OUTAGES, SharedStores

logger = logging.getLogger(__name__)

POLL_SECONDS = 5.0
TRAINER_SILENT_SECONDS = 20.0
"""A trainer beats every two seconds and reaps itself."""
LEASE_SECONDS = 20.0


def is_needed(run: FollowedRun | None, *, now: float) -> bool:
    """Whether the agents must reap, because no trainer does; ``now`` is the store's time."""
    return (
        run is not None
        and run.outcome is None
        and abs(now - run.heartbeat_at) > TRAINER_SILENT_SECONDS
    )


class Reaper:
    """Takes back claims of samplers that died while no trainer runs."""

    def __init__(self, assignment: Assignment, *, shared: SharedStores, serving: Serving) -> None:
        self._assignment, self._shared, self._serving = assignment, shared, serving

    async def run(self) -> None:
        """Check every POLL_SECONDS until cancelled; SharedStores reports outages."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            with contextlib.suppress(*OUTAGES):
                await self._reap_if_needed()

    async def _reap_if_needed(self) -> None:
        stores, run = self._shared.stores, self._assignment.run
        now = await self._shared.call(stores.mongo.now)
        if not is_needed(self._serving.run, now=now):
            return
        holder = self._assignment.sampler
        if await self._shared.call(
            stores.leases.hold, run, REAPER, holder=holder, seconds=LEASE_SECONDS
        ):
            taken = await self._shared.call(stores.tasks.reap, run)
            if taken:
                logger.warning("took back %d claims whose lease expired", taken)
                self._serving.changed()  # this agent may claim them
