"""As much of an API server as kopf asks for: its kinds, empty lists, and watches that go on."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from rl_operator.kube import kinds
from rl_operator.kube.kinds import Kind
from rl_operator.kube.settings import Settings
from rl_operator.watch.watches import others_kinds

NAMESPACE = Kind("v1", "namespaces", "Namespace", namespaced=False)
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


class KopfServer:
    """Serves every kind until it is said to be gone, as after the end of its definition."""

    loop: asyncio.AbstractEventLoop
    """That of the server."""

    def __init__(self, settings: Settings) -> None:
        watched = (kinds.RLJOB, kinds.SAMPLER_POOL, kinds.DEPLOYMENT, kinds.POD)
        self._kinds = {kind.everywhere(): kind for kind in (*watched, *others_kinds(settings))}
        self._gone = {kind: asyncio.Event() for kind in self._kinds}
        self.closed = asyncio.Event()
        self._watched = set[str]()
        self.all_watched = threading.Event()

    def lose(self, kind: Kind) -> None:
        """End its watches, and know it no more."""
        self.loop.call_soon_threadsafe(self._gone[kind.everywhere()].set)

    def close(self) -> None:
        """Serve no more."""
        self.loop.call_soon_threadsafe(self.closed.set)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Of any path."""
        kind = self._kinds.get(request.path)
        if kind is None:
            return web.json_response(self._discovered(request.path))
        gone = self._gone[request.path]
        if gone.is_set():
            return web.json_response({"kind": "Status", "code": 404}, status=404)
        about = {"apiVersion": kind.api_version, "metadata": {"resourceVersion": "1"}}
        if request.query.get("watch") != "true":
            return web.json_response(about | {"kind": f"{kind.name}List", "items": []})
        response = web.StreamResponse()
        await response.prepare(request)
        bookmark = {"type": "BOOKMARK", "object": about | {"kind": kind.name}}
        await response.write(json.dumps(bookmark).encode() + b"\n")
        self._watched.add(request.path)
        if self._watched == set(self._kinds):
            self.all_watched.set()
        await gone.wait()
        return response

    def _discovered(self, path: str) -> dict[str, Any]:
        if path == "/api":
            return {"versions": ["v1"]}
        if path == "/apis":
            by_group = {kind.group: kind for kind in self._kinds.values() if kind.group}
            return {"groups": [_group(kind) for kind in by_group.values()]}
        named = path.removeprefix("/api/").removeprefix("/apis/")
        known = (NAMESPACE, *self._kinds.values())
        served = [kind for kind in known if kind.api_version == named]
        return {"groupVersion": named, "resources": [_resource(kind) for kind in served]}


def _group(kind: Kind) -> dict[str, Any]:
    version = {"groupVersion": kind.api_version, "version": kind.version}
    return {"name": kind.group, "versions": [version], "preferredVersion": version}


def _resource(kind: Kind) -> dict[str, Any]:
    return {
        "name": kind.plural,
        "singularName": "",
        "kind": kind.name,
        "verbs": VERBS,
        "namespaced": kind.namespaced,
    }


@contextmanager
def serving(server: KopfServer) -> Iterator[str]:
    """The URL where it answers, from a loop of its own: of its tasks kopf must not know."""
    with ThreadPoolExecutor(1) as executor:
        started = Future[str]()
        ended = executor.submit(asyncio.run, _serve(server, started))
        try:
            yield started.result()
        finally:
            server.close()
            ended.result()


async def _serve(server: KopfServer, started: Future[str]) -> None:
    server.loop = asyncio.get_running_loop()
    application = web.Application()
    application.router.add_get("/{path:.*}", server.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    started.set_result(f"http://127.0.0.1:{runner.addresses[0][1]}")
    await server.closed.wait()
    await runner.cleanup()
