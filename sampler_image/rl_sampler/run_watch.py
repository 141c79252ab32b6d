"""Polls the run document for the published policy and the trainer's step."""

from __future__ import annotations

import asyncio
import contextlib

from rl_contracts.documents.run import Run
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.shared_stores import OUTAGES, SharedStores

POLL_SECONDS = 0.3


class RunWatch:
    """Keeps ``serving.run`` fresh."""

    def __init__(
        self, shared: SharedStores, *, run: str, serving: Serving, problems: Problems
    ) -> None:
        self._shared, self._run = shared, run
        self._serving, self._problems = serving, problems

    async def run(self) -> None:
        """Poll until cancelled; in an outage the last state stays."""
        while True:
            with contextlib.suppress(*OUTAGES):  # reported by SharedStores
                self._note(await self._shared.call(self._shared.stores.runs.get, self._run))
            await asyncio.sleep(POLL_SECONDS)

    def _note(self, run: Run | None) -> None:
        if run is None:
            self._problems.note("run", f"run {self._run} does not exist yet")
            return
        self._problems.clear("run")
        before, self._serving.run = self._serving.run, run
        if before is None or (before.policy, before.step) != (run.policy, run.step):
            self._serving.changed()
