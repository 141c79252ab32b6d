"""The agent's HTTP server: probes of its pod and metrics."""

from __future__ import annotations

import time

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from rl_sampler.engine.health import EngineHealth
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving


class Probes:
    """Answers ``/live``, ``/ready``, ``/engine-live`` and ``/metrics``.

    Anyone who reaches the pod may ask, so no answer has the text of an error.
    """

    def __init__(
        self,
        *,
        serving: Serving,
        health: EngineHealth,
        problems: Problems,
        registry: CollectorRegistry,
        shares_engine: bool = False,
    ) -> None:
        """Make the probes.

        Args:
            serving: state of the engine.
            health: of the engine.
            problems: named while the pod is not ready.
            registry: of the metrics.
            shares_engine: other runs sample with the engine, too. When a run joins, their pods are
                replaced one after the other, and the run publishes only once it has samplers. So a
                pod must get ready before its run has published a policy.
        """
        self._shares_engine = shares_engine
        self._serving, self._health = serving, health
        self._problems, self._registry = problems, registry

    def application(self) -> web.Application:
        """The aiohttp application."""
        application = web.Application()
        application.router.add_get("/live", self.live)
        application.router.add_get("/ready", self.ready)
        application.router.add_get("/engine-live", self.engine_live)
        application.router.add_get("/metrics", self.metrics)
        return application

    async def live(self, request: web.Request) -> web.Response:
        """200 while the event loop runs."""
        return web.Response(text="ok\n")

    async def ready(self, request: web.Request) -> web.Response:
        """200 while the engine is up and serves a published policy."""
        policy = self._serving.shown
        if self._serving.engine is not None and policy is not None:
            return web.Response(text=f"serves version {policy.version}\n")
        if self._shares_engine and self._serving.engine and self._serving.published is None:
            return web.Response(text="serves no version yet: none is published\n")
        reason = "waiting for engine and policy"
        if self._problems.topics:
            topics = ", ".join(self._problems.topics)
            reason = f"problems: {topics}; their texts are in the log"
        return web.Response(status=503, text=reason + "\n")

    async def engine_live(self, request: web.Request) -> web.Response:
        """200 unless the engine must be restarted."""
        if self._health.restart_reason(now=time.monotonic()):
            text = "the engine must be restarted: the log says why\n"
            return web.Response(status=503, text=text)
        return web.Response(text="ok\n")

    async def metrics(self, request: web.Request) -> web.Response:
        """The metrics in Prometheus's text format."""
        return web.Response(
            body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )
