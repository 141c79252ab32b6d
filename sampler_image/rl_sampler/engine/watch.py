"""Watches the engine: whether it is up and healthy, and still holds the weights that it loaded."""

from __future__ import annotations

import asyncio
import logging
import time

from rl_sampler.engine.client import Engine, PingResult
from rl_sampler.engine.errors import EngineError
from rl_sampler.engine.health import EngineHealth
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving, label_of

logger = logging.getLogger(__name__)

CHECK_SECONDS = 1.0


class EngineWatch:
    """Detects starts, ends and restarts of the engine."""

    def __init__(
        self, engine: Engine, *, health: EngineHealth, serving: Serving, problems: Problems
    ) -> None:
        self._engine, self._health = engine, health
        self._serving, self._problems = serving, problems
        self._wake = asyncio.Event()

    def check_soon(self) -> None:
        """Check the engine at once, because a request failed."""
        self._wake.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self._check()
            self._wake.clear()
            try:
                async with asyncio.timeout(CHECK_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _check(self) -> None:
        result = await self._engine.ping()
        self._health.observe(result, now=time.monotonic())
        restart_reason = self._health.restart_reason(now=time.monotonic())
        if restart_reason:
            self._problems.note("engine", restart_reason)
        if result is not PingResult.ANSWERS:
            self._engine_down(result)
            if (
                result is PingResult.UNHEALTHY
                and not restart_reason
                and not self._serving.committing
            ):
                await self._examine()
            return
        try:
            if self._serving.engine is None:
                await self._engine_up()
            await self._compare_weights()
        except EngineError as error:
            self._problems.note("engine", str(error))
            return
        if not restart_reason:
            self._problems.clear("engine")

    async def _examine(self) -> None:
        try:
            await self._engine.check_health()
        except EngineError as error:
            self._problems.note("engine", str(error))

    async def _engine_up(self) -> None:
        self._serving.engine = await self._engine.server_info()
        logger.info("engine is up: sglang %s", self._serving.engine.version)
        self._serving.changed()

    def _engine_down(self, result: PingResult) -> None:
        if self._serving.engine is not None:
            self._problems.note("engine", f"does not answer ({result.value})")
            self._serving.engine, self._serving.policy = None, None
            self._serving.resting = None
            self._serving.changed()

    async def _compare_weights(self) -> None:
        serving, before = self._serving, self._serving.policy
        if before is None or serving.committing:
            return
        commits = serving.commits
        labels = await self._labels()
        # A commit may have begun or ended before the answer came.
        if serving.commits != commits or label_of(before) in labels:
            return
        shown = ", ".join(sorted(labels)) or "no adapter"
        self._problems.note("engine", f"reports weights {shown!r}: it was restarted")
        serving.policy = None
        serving.changed()

    async def _labels(self) -> set[str]:
        """Labels of the policies that the engine reports."""
        if self._serving.adapters:
            return set(await self._engine.adapters())
        return {await self._engine.weight_version()}
