from __future__ import annotations

import asyncio
import contextlib
import os
from weakref import WeakSet

import aiohttp
from aiohttp import web

from rl_sampler.engine.listening import BACKLOG, KEPT, keep, listening
from tests.network.crowd import crowding, drip, seconds_to_answer

MOST = 16


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def an_application() -> web.Application:
    async def answer(request: web.Request) -> web.StreamResponse:
        keep(request)
        return web.Response(text="ok\n")

    application = web.Application()
    application[KEPT] = WeakSet()
    application.router.add_get("/ready", answer)
    return application


async def test_idle_and_dripping_clients_neither_delay_probes_nor_take_descriptors() -> None:
    def crowd(port: int) -> None:
        before = descriptors()
        with crowding(port, silent=450, dripping=50) as drips:
            for _ in range(3):
                drip(drips)
                assert seconds_to_answer(port, "/ready") < 1
            assert descriptors() - before - 500 <= MOST + BACKLOG // 10

    async with listening(an_application(), port=0, connections=MOST) as port:
        await asyncio.to_thread(crowd, port)


async def test_a_kept_connection_outlives_a_crowd() -> None:
    made: list[object] = []

    async def count(*event: object) -> None:
        made.append(event)

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(count)
    async with (
        listening(an_application(), port=0, connections=MOST) as port,
        aiohttp.ClientSession(trace_configs=[trace]) as session,
    ):
        url = f"http://127.0.0.1:{port}/ready"
        async with session.get(url) as response:
            assert await response.text() == "ok\n"
        with contextlib.ExitStack() as stack:
            crowd = crowding(port, silent=100, dripping=0)
            await asyncio.to_thread(stack.enter_context, crowd)
            async with session.get(url) as response:
                assert response.status == 200
    assert len(made) == 1, "the second request used the connection of the first"
