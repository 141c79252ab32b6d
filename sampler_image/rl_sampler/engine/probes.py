"""The agent's HTTP server: probes of its pod, and metrics."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from rl_sampler.engine.health import EngineHealth
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving


class Probes:
    """Answers of ``/live``, ``/ready``, ``/engine-live`` and ``/metrics``."""

    def __init__(
        self,
        *,
        serving: Serving,
        health: EngineHealth,
        problems: Problems,
        registry: CollectorRegistry,
        shares_engine: bool = False,
    ) -> None:
        """Wire it up.

        Args:
            serving: what is served.
            health: of the engine.
            problems: told while the pod is not ready.
            registry: of the metrics.
            shares_engine: other runs sample with the engine, too. Their pods are replaced one by
                one when a run joins, and a run that joins publishes only once it has samplers: what
                it has not published yet must not hold that up.
        """
        self._shares_engine = shares_engine
        self._serving, self._health = serving, health
        self._problems, self._registry = problems, registry

    def application(self) -> web.Application:
        """The routes."""
        application = web.Application()
        application.router.add_get("/live", self.live)
        application.router.add_get("/ready", self.ready)
        application.router.add_get("/engine-live", self.engine_live)
        application.router.add_get("/metrics", self.metrics)
        return application

    async def live(self, request: web.Request) -> web.Response:
        """The event loop turns."""
        return web.Response(text="ok\n")

    async def ready(self, request: web.Request) -> web.Response:
        """The engine is up and serves a published policy, if there is one."""
        policy = self._serving.policy
        if self._serving.engine is not None and policy is not None:
            return web.Response(text=f"serves version {policy.version}\n")
        if self._shares_engine and self._serving.engine and self._serving.published is None:
            return web.Response(text="serves no version yet: none is published\n")
        waited = str(self._problems) or "waiting for engine and policy"
        return web.Response(status=503, text=waited + "\n")

    async def engine_live(self, request: web.Request) -> web.Response:
        """The engine need not be restarted."""
        complaint = self._health.complaint(now=time.monotonic())
        return web.Response(status=503 if complaint else 200, text=(complaint or "ok") + "\n")

    async def metrics(self, request: web.Request) -> web.Response:
        """Figures for Prometheus."""
        return web.Response(
            body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )


@asynccontextmanager
async def listening(application: web.Application, *, port: int) -> AsyncIterator[None]:
    """Serve on all interfaces until the block ends: the kubelet asks from outside the pod."""
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "0.0.0.0", port).start()
        yield
    finally:
        await runner.cleanup()
