from __future__ import annotations

from pathlib import Path

import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from rl_sampler.engine.client import Engine, PingResult, open_session
from rl_sampler.engine.key import CONFIG_FILE, KEY_FILE, make_key, read_key


def test_the_first_init_container_makes_the_key_of_all(tmp_path: Path) -> None:
    make_key(tmp_path)
    key = read_key(tmp_path)
    assert len(key) == 64
    assert yaml.safe_load((tmp_path / CONFIG_FILE).read_text()) == {"api-key": key}
    make_key(tmp_path)
    assert read_key(tmp_path) == key
    assert sorted(path.name for path in tmp_path.iterdir()) == [CONFIG_FILE, KEY_FILE]
    assert all(path.stat().st_mode & 0o777 == 0o440 for path in tmp_path.iterdir())
    assert read_key(None) == ""


async def test_each_request_to_the_engine_has_the_key() -> None:
    async def ping(request: web.Request) -> web.Response:
        known = request.headers.get("Authorization") == "Bearer secret"
        return web.Response(status=200 if known else 401)

    application = web.Application()
    application.router.add_get("/ping", ping)
    async with TestServer(application) as server:
        for key, result in (("secret", PingResult.ANSWERS), ("", PingResult.UNHEALTHY)):
            async with open_session(key) as session:
                engine = Engine(str(server.make_url("/")), session=session)
                assert await engine.ping() is result
