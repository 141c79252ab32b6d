"""A session with an MCP server for each episode: ``scope: Episode``, with real servers."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.documents.rollout import ToolCall
from rl_contracts.spec.agent.tools import McpServer
from rl_sampler.engine.counters import Counters
from rl_sampler.tools.formats import WantedCall
from rl_sampler.tools.toolbox import Toolbox, Tools
from tests.code_container import in_thread
from tests.contract.rl_sampler.tools.tool_servers import SERVER, HttpServer
from tests.examples import first
from tests.samples.manifests import a_job
from tests.waiting import HUNG_SECONDS


@pytest.fixture
def http_server() -> Iterator[HttpServer]:
    server = HttpServer()
    server.start()
    yield server
    server.stop()


@asynccontextmanager
async def a_toolbox(folder: Path, *servers: dict[str, Any]) -> AsyncIterator[Toolbox]:
    spec = a_job(agent={"kind": "ToolLoop", "mcpServers": list(servers)})["spec"]
    with in_thread(folder, spec) as code:
        toolbox = Toolbox(
            [McpServer.model_validate({"timeoutSeconds": 60, **server}) for server in servers],
            secrets=folder,
            longest=1000,
            counters=Counters(),
            code=code,
        )
        try:
            yield toolbox
        finally:
            await toolbox.close()


def over_http(server: HttpServer, **fields: Any) -> dict[str, Any]:
    return {"name": "memory", "url": server.url, "scope": "Episode", **fields}


def over_stdio(**fields: Any) -> dict[str, Any]:
    command = [sys.executable, str(SERVER)]
    return {"name": "memory", "command": command, "scope": "Episode", **fields}


async def tell(tools: Tools, text: str, *, tool: str = "remember") -> ToolCall:
    return await tools.call(WantedCall(tool=tool, arguments=json.dumps({"text": text})))


@pytest.mark.parametrize("place", first(1, ["url", "command"]))
async def test_episodes_share_no_state_of_a_server(
    tmp_path: Path, http_server: HttpServer, place: str
) -> None:
    server = over_http(http_server) if place == "url" else over_stdio()
    async with a_toolbox(tmp_path, server) as toolbox:
        group = await toolbox.open()
        episodes = [group.of_episode() for _ in range(3)]
        for turn in "ab":
            calls = await asyncio.gather(
                *(tell(tools, f"{turn}{number}") for number, tools in enumerate(episodes))
            )
        assert [call.result for call in calls] == ["a0 b0", "a1 b1", "a2 b2"]
        await asyncio.gather(*(tools.close() for tools in episodes))
        later = group.of_episode()
        assert (await tell(later, "c")).result == "c", "its state ended with the episode"
        await later.close()
        await later.close()


async def test_a_shared_server_gives_all_episodes_one_state(tmp_path: Path) -> None:
    async with a_toolbox(tmp_path, over_stdio(scope="Shared")) as toolbox:
        group = await toolbox.open()
        first, second = group.of_episode(), group.of_episode()
        await tell(first, "a")
        assert (await tell(second, "b")).result == "a b"


async def test_a_session_that_ended_in_an_episode_is_not_replaced(
    tmp_path: Path, http_server: HttpServer
) -> None:
    async with a_toolbox(tmp_path, over_http(http_server)) as toolbox:
        tools = (await toolbox.open()).of_episode()
        assert (await tell(tools, "a")).outcome == "answered"
        http_server.start()  # a restart: what it remembered is lost
        down = [await tell(tools, "b") for _ in range(2)]
        assert [call.outcome for call in down] == ["down", "down"], "an infrastructure error"
        assert "the session of this episode has ended" in down[1].result
        await tools.close()
        later = (await toolbox.open()).of_episode()
        assert (await tell(later, "c")).result == "c"
        await later.close()


@pytest.mark.soak
async def test_no_more_sessions_are_open_than_declared(
    tmp_path: Path, http_server: HttpServer
) -> None:
    servers = [over_http(http_server, maxSessions=2), over_stdio(name="local", maxSessions=3)]
    async with AsyncExitStack() as stack:
        toolbox = await stack.enter_async_context(a_toolbox(tmp_path, *servers))
        group = await toolbox.open()
        episodes = [group.of_episode() for _ in range(4)]
        first = [await tell(tools, "a", tool="memory_remember") for tools in episodes[:2]]
        assert [call.outcome for call in first] == ["answered", "answered"]
        # The third waits at both servers, whichever it calls first.
        waiting = [
            asyncio.create_task(tell(tools, "a", tool=f"{name}_remember"))
            for tools, name in zip(episodes[2:], ("local", "memory"), strict=True)
        ]
        done, _ = await asyncio.wait(waiting, timeout=0.5)
        assert not done
        await asyncio.gather(*(tools.close() for tools in episodes[:2]))
        async with asyncio.timeout(HUNG_SECONDS):
            assert {call.outcome for call in await asyncio.gather(*waiting)} == {"answered"}
        await asyncio.gather(*(tools.close() for tools in episodes))


async def test_an_episode_that_is_ended_while_it_waits_leaves_no_place_taken(
    tmp_path: Path, http_server: HttpServer
) -> None:
    async with a_toolbox(tmp_path, over_http(http_server, maxSessions=1)) as toolbox:
        group = await toolbox.open()
        first, second, third = (group.of_episode() for _ in range(3))
        await tell(first, "a")
        waiting = asyncio.create_task(tell(second, "a"))
        await asyncio.wait([waiting], timeout=0.2)
        waiting.cancel()
        await asyncio.wait([waiting])
        await second.close()
        await first.close()
        async with asyncio.timeout(HUNG_SECONDS):
            assert (await tell(third, "b")).result == "b"
        await third.close()
