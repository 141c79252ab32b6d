from __future__ import annotations

import socket
from typing import Any

import aiohttp
import pytest
from aiohttp import ThreadedResolver, web
from aiohttp.test_utils import TestServer

from rl_sampler.completions.guard import open_outside


def lead_to(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Have every name lead to an address."""

    async def resolve(
        self: object, host: str, port: int, family: socket.AddressFamily
    ) -> list[dict[str, Any]]:
        return [
            {
                "hostname": host,
                "host": address,
                "port": port,
                "family": socket.AF_INET,
                "proto": 0,
                "flags": socket.AI_NUMERICHOST,
            }
        ]

    monkeypatch.setattr(ThreadedResolver, "resolve", resolve)


@pytest.mark.parametrize("address", ["169.254.169.254", "100.100.100.200"])
async def test_a_name_that_leads_to_a_nodes_credentials_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    lead_to(monkeypatch, address)
    async with open_outside() as session:
        with pytest.raises(aiohttp.ClientConnectorError, match="node finds its credentials"):
            await session.get("http://judge.example/v1")


@pytest.mark.parametrize("status", [302, 307])
async def test_a_server_that_redirects_to_a_nodes_credentials_is_not_followed(
    status: int,
) -> None:
    async def redirect(request: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Location": "http://169.254.169.254/latest"})

    application = web.Application()
    application.router.add_post("/", redirect)
    async with TestServer(application) as server, open_outside() as session:
        with pytest.raises(aiohttp.ClientConnectorError, match="node finds its credentials"):
            await session.post(server.make_url("/"), json={})


async def test_other_names_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="ok")

    application = web.Application()
    application.router.add_get("/", answer)
    async with TestServer(application) as server, open_outside() as session:
        lead_to(monkeypatch, "127.0.0.1")
        async with session.get(f"http://judge.example:{server.port}/") as response:
            assert await response.text() == "ok"
