"""Watching the engine: is it up, is it well, and does it still hold what it was given?"""

from __future__ import annotations

import asyncio
import logging
import time

from rl_sampler.engine.client import Engine, Pulse
from rl_sampler.engine.errors import EngineError
from rl_sampler.engine.health import EngineHealth
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving, label_of

logger = logging.getLogger(__name__)

CHECK_SECONDS = 1.0


class EngineWatch:
    """Notices starts, ends and restarts of the engine."""

    def __init__(
        self, engine: Engine, *, health: EngineHealth, serving: Serving, problems: Problems
    ) -> None:
        self._engine, self._health = engine, health
        self._serving, self._problems = serving, problems
        self._hurry = asyncio.Event()

    def doubt(self) -> None:
        """A request failed: look at once."""
        self._hurry.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self._check()
            self._hurry.clear()
            try:
                async with asyncio.timeout(CHECK_SECONDS):
                    await self._hurry.wait()
            except TimeoutError:
                continue

    async def _check(self) -> None:
        pulse = await self._engine.ping()
        self._health.observe(pulse, now=time.monotonic())
        complaint = self._health.complaint(now=time.monotonic())
        if complaint:
            self._problems.note("engine", complaint)
        if pulse is not Pulse.ANSWERS:
            self._down(pulse)
            if pulse is Pulse.UNWELL and not complaint and not self._serving.committing:
                await self._examine()
            return
        try:
            if self._serving.engine is None:
                await self._up()
            await self._compare()
        except EngineError as error:
            self._problems.note("engine", str(error))
            return
        if not complaint:
            self._problems.clear("engine")

    async def _examine(self) -> None:
        try:
            await self._engine.examine()
        except EngineError as error:
            self._problems.note("engine", str(error))

    async def _up(self) -> None:
        self._serving.engine = await self._engine.describe()
        logger.info("engine is up: sglang %s", self._serving.engine.version)
        self._serving.changed()

    def _down(self, pulse: Pulse) -> None:
        if self._serving.engine is not None:
            self._problems.note("engine", f"does not answer ({pulse.value})")
            self._serving.engine, self._serving.policy = None, None
            self._serving.changed()

    async def _compare(self) -> None:
        serving, before = self._serving, self._serving.policy
        if before is None or serving.committing:
            return
        commits = serving.commits
        found = await self._labels()
        # A commit may have begun or ended while the answer was on its way.
        if serving.commits != commits or label_of(before) in found:
            return
        shown = ", ".join(sorted(found)) or "no adapter"
        self._problems.note("engine", f"reports weights {shown!r}: it was restarted")
        serving.policy = None
        serving.changed()

    async def _labels(self) -> set[str]:
        """Policies that the engine says it holds."""
        if self._serving.adapters:
            return set(await self._engine.adapters())
        return {await self._engine.weight_version()}
