"""Engines of versions whose calls are not known, which cannot be run here."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from rl_sampler.engine.client import Engine, open_session
from rl_sampler.engine.errors import EngineUnsupportedError

LIMITS = {"max_running_requests": 64, "max_req_input_len": 1000}


async def server_info(version: str) -> str:
    """What an engine that says it is of this version is taken for."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"version": version, **LIMITS})

    application = web.Application()
    application.router.add_get("/server_info", answer)
    async with TestServer(application) as server, open_session() as session:
        return (await Engine(str(server.make_url("")), session=session).server_info()).version


@pytest.mark.parametrize("version", ["0.5.21", "0.5.23", "0.5.23.post1", "0.5.99rc1"])
async def test_supported_engine_versions_are_accepted(version: str) -> None:
    assert await server_info(version) == version


@pytest.mark.parametrize("version", ["0.4.10", "0.5.20", "0.6.0", "1.0", "unknown"])
async def test_other_engine_versions_are_refused_with_the_supported_range(version: str) -> None:
    with pytest.raises(
        EngineUnsupportedError, match=r"agent supports 0\.5\.21 up to.* 0\.6\.0"
    ) as no:
        await server_info(version)
    assert f"sglang {version}," in str(no.value)


async def slots_of_run(*, runs: int) -> int:
    """Slots that one of so many runs takes."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"version": "0.5.23", **LIMITS})

    application = web.Application()
    application.router.add_get("/server_info", answer)
    async with TestServer(application) as server, open_session() as session:
        engine = Engine(str(server.make_url("")), session=session, run="r", runs=runs)
        return (await engine.server_info()).max_running_requests


@pytest.mark.parametrize(("runs", "slots"), [(1, 64), (2, 32), (3, 21), (100, 1)])
async def test_runs_share_the_engines_slots_equally(runs: int, slots: int) -> None:
    assert await slots_of_run(runs=runs) == slots
