"""MCP servers that others publish, unchanged, over both transports; a ToolLoop uses them.

They speak through the SDK's release before ours, each in an environment that is not ours.
"""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.documents.rollout import StopReason
from rl_contracts.spec.agent.tools import McpServer
from rl_sampler.engine.counters import Counters
from rl_sampler.tools.toolbox import Toolbox
from tests.code_container import in_thread
from tests.contract.rl_sampler.tools import third_party
from tests.contract.rl_sampler.tools.tool_servers import listens
from tests.samples.manifests import a_job
from tests.servers import free_port
from tests.unit.rl_sampler.agents.scripted import call, play
from tests.waiting import HUNG_SECONDS, until

COMMANDS = {
    "clock": ["mcp-server-time", "--local-timezone", "UTC"],
    "calculator": ["mcp-server-calculator"],
}
NOON = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
NOWHERE = NOON | {"target_timezone": "Nowhere/Land"}


@contextmanager
def over_http(programs: Path, command: list[str]) -> Iterator[str]:
    """The server behind mcp-proxy, which speaks streamable HTTP; its URL."""
    port = free_port()
    proxy = [str(programs / "mcp-proxy"), "--port", str(port), "--", *command]
    process = subprocess.Popen(proxy)
    url = f"http://127.0.0.1:{port}/mcp"
    try:
        until(lambda: listens(url), what="mcp-proxy")
        yield url
    finally:
        process.terminate()
        process.wait(timeout=HUNG_SECONDS)


@pytest.fixture(scope="module", params=["stdio", "streamable HTTP"])
def servers(request: pytest.FixtureRequest) -> Iterator[list[McpServer]]:
    """Both servers, by one transport."""
    programs = third_party.environment()
    with ExitStack() as running:
        configs: list[dict[str, Any]] = []
        for name, (program, *arguments) in COMMANDS.items():
            command = [str(programs / program), *arguments]
            there = (
                {"command": command}
                if request.param == "stdio"
                else {"url": running.enter_context(over_http(programs, command))}
            )
            configs.append({"name": name, "timeoutSeconds": 300, **there})
        yield [McpServer.model_validate(server) for server in configs]


@pytest.fixture
async def toolbox(servers: list[McpServer], tmp_path: Path) -> AsyncIterator[Toolbox]:
    listed = [server.model_dump(by_alias=True, mode="json") for server in servers]
    agent = {"kind": "ToolLoop", "mcpServers": listed}
    with in_thread(tmp_path, a_job(agent=agent)["spec"]) as code:
        made = Toolbox(servers, secrets=tmp_path, longest=1000, counters=Counters(), code=code)
        yield made
        await made.close()


async def test_tool_loop_uses_published_servers_unchanged(toolbox: Toolbox) -> None:
    tools = await toolbox.open()
    assert {tool.name for tool in tools.listed} == {"calculate", "convert_time", "get_current_time"}
    played = await play(
        [
            f"{call(tool='calculate', expression='6 * 7')}\n{call(tool='convert_time', **NOON)}",
            call(tool="convert_time", **NOWHERE),
            "<answer>42 at 21:00</answer>",
        ],
        offered=tools,
    )
    assert played.reason is StopReason.STOP
    (product, time), (nowhere,), none = [turn.calls for turn in played.member.turns]
    assert (product.outcome, product.result) == ("answered", "42")
    assert time.outcome == "answered"
    assert "T21:00:00+09:00" in time.result
    assert nowhere.outcome == "failed"
    assert "Error processing mcp-server-time query" in nowhere.result
    assert none == []
    assert "42" in played.policy.contexts[1]
    assert nowhere.result in played.policy.contexts[2]


async def test_each_group_lists_the_tools_again(toolbox: Toolbox) -> None:
    assert (await toolbox.open()).listed == (await toolbox.open()).listed
