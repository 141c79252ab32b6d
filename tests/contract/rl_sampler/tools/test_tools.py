"""Tools of real MCP servers, which answer, fail, are slow, and go away."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import PIL.Image
import pytest

from rl_contracts.documents.rollout import ToolCall
from rl_contracts.spec.agent.tools import McpServer
from rl_contracts.spec.data import Images
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.files.images import ImageStore
from rl_sampler.completions.outages import Outages
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.images import RunImages
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.shared_stores import SharedStores
from rl_sampler.tools.formats import WantedCall
from rl_sampler.tools.images import tool_images
from rl_sampler.tools.tool import ToolDownError
from rl_sampler.tools.toolbox import Toolbox
from rl_sampler.tools.waiting import WaitingToolbox
from tests.code_container import in_thread
from tests.contract.rl_sampler.tools.tool_servers import SERVER, HttpServer
from tests.samples.manifests import a_job
from tests.servers import deaf_port
from tests.waiting import HUNG_SECONDS, until


@pytest.fixture(scope="module")
def http_server() -> Iterator[HttpServer]:
    server = HttpServer()
    server.start()
    yield server
    server.stop()


MakeToolbox = Callable[..., Toolbox]


@pytest.fixture
def counters() -> Counters:
    return Counters()


@pytest.fixture
async def make_toolbox(tmp_path: Path, counters: Counters) -> AsyncIterator[MakeToolbox]:
    made: list[Toolbox] = []
    containers = ExitStack()

    def make(*servers: dict[str, Any], longest: int = 1000) -> Toolbox:
        agent = {"kind": "ToolLoop", "mcpServers": list(servers)} if servers else {}
        folder = tmp_path / f"container-{len(made)}"
        folder.mkdir()
        toolbox = Toolbox(
            [McpServer.model_validate(server) for server in servers],
            secrets=tmp_path,
            longest=longest,
            counters=counters,
            code=containers.enter_context(in_thread(folder, a_job(agent=agent)["spec"])),
        )
        made.append(toolbox)
        return toolbox

    yield make
    for toolbox in made:
        await toolbox.close()
    containers.close()


def over_http(server: HttpServer, **fields: Any) -> dict[str, Any]:
    return {"name": "calculator", "url": server.url, "timeoutSeconds": 300, **fields}


def over_stdio(name: str = "local") -> dict[str, Any]:
    return {"name": name, "command": [sys.executable, str(SERVER)], "timeoutSeconds": 300}


def wanted(tool: str, **arguments: Any) -> WantedCall:
    return WantedCall(tool=tool, arguments=json.dumps(arguments))


async def outcome(toolbox: Toolbox, *calls: WantedCall) -> list[tuple[str, str]]:
    tools = await toolbox.open()
    made: list[ToolCall] = [await tools.call(call) for call in calls]
    return [(call.outcome, call.result) for call in made]


async def test_tools_are_listed_and_called_and_failures_are_results(
    make_toolbox: MakeToolbox, http_server: HttpServer, counters: Counters
) -> None:
    tools = await make_toolbox(over_http(http_server), longest=40).open()
    (add,) = [tool for tool in tools.listed if tool.name == "add"]
    assert add.description == "Adds two whole numbers."
    assert add.parameters["required"] == ["a", "b"]
    cases = [
        (wanted("add", a=20, b=22), "answered", "42"),
        (wanted("divide", a=1, b=0), "failed", "divided by 0"),
        (wanted("add", a="x", b=1), "failed", "valid"),
        (wanted("cook"), "refused", "There is no tool 'cook'"),
        (WantedCall(tool="add", arguments="{"), "refused", "not JSON"),
        (WantedCall(tool="add", arguments="[1]"), "refused", "not a JSON object"),
        (WantedCall(tool="add", arguments='{"a": "\\ud83d"}'), "refused", "half of a surrogate"),
        (WantedCall(tool="add", arguments="[" * 100_000), "refused", "nested too deep"),
    ]
    for call, wanted_outcome, text in cases:
        made = await tools.call(call)
        assert made.outcome == wanted_outcome, made
        assert text in made.result or made.result.endswith("cut off]"), made
        assert len(made.result) < 70
        assert made.seconds >= 0
    assert counters.tool_calls == {"answered": 1, "failed": 2, "refused": 5}


async def test_slow_tool_is_distinguished_from_a_server_that_is_down(
    make_toolbox: MakeToolbox, http_server: HttpServer
) -> None:
    toolbox = make_toolbox(over_http(http_server, timeoutSeconds=3))  # it is opened in that time
    ((status, text),) = await outcome(toolbox, wanted("wait", seconds=300))
    assert status == "failed"
    assert "timed out" in text


@pytest.mark.soak
async def test_restarted_server_is_connected_again(make_toolbox: MakeToolbox) -> None:
    server = HttpServer()
    server.start()
    try:
        toolbox = make_toolbox(over_http(server, timeoutSeconds=30))
        tools = await toolbox.open()
        assert (await tools.call(wanted("add", a=1, b=1))).outcome == "answered"
        crashed = await tools.call(wanted("crash"))
        assert crashed.outcome == "down"
        assert server.url in crashed.result
        with pytest.raises(ToolDownError, match="calculator"):
            await toolbox.open()
        server.start()
        assert await outcome(toolbox, wanted("add", a=2, b=2)) == [("answered", "4")]
        server.stop()
        server.start()  # the sessions that it had are gone
        assert await outcome(toolbox, wanted("add", a=3, b=3)) == [("answered", "6")]
    finally:
        server.stop()


@pytest.mark.soak
async def test_command_server_is_started_again_after_a_crash(make_toolbox: MakeToolbox) -> None:
    toolbox = make_toolbox(over_stdio())
    assert await outcome(toolbox, wanted("add", a=1, b=2), wanted("divide", a=1, b=0)) == [
        ("answered", "3"),
        ("failed", "Error executing tool divide: nothing can be divided by 0"),
    ]
    ((status, text),) = await outcome(toolbox, wanted("crash"))
    assert (status, "local" in text) == ("down", True)
    assert await outcome(toolbox, wanted("add", a=1, b=2)) == [("answered", "3")]


async def test_server_token_is_sent_and_never_shown(
    make_toolbox: MakeToolbox, tmp_path: Path
) -> None:
    server = HttpServer(token="hunter2")
    server.start()
    try:
        spec = over_http(server, tokenSecretRef={"name": "mcp"})
        (tmp_path / "calculator").mkdir()
        (tmp_path / "calculator" / "token").write_text("wrong-hunter\n")
        toolbox = make_toolbox(spec)
        with pytest.raises(ToolDownError) as refused:
            await toolbox.open()
        assert "hunter" not in str(refused.value)
        (tmp_path / "calculator" / "token").write_text("hunter2\n")
        assert await outcome(toolbox, wanted("add", a=1, b=2)) == [("answered", "3")]
    finally:
        server.stop()


async def test_equal_tool_names_get_their_servers_name(
    make_toolbox: MakeToolbox, http_server: HttpServer
) -> None:
    toolbox = make_toolbox(over_http(http_server), over_http(http_server, name="second"))
    tools = await toolbox.open()
    names = {tool.name for tool in tools.listed}
    assert {"calculator_add", "second_add"} < names
    assert "add" not in names
    assert (await tools.call(wanted("second_add", a=1, b=2))).result == "3"


async def test_absent_server_is_down_and_no_servers_have_no_tools(
    make_toolbox: MakeToolbox,
) -> None:
    nobody = {"name": "nobody", "url": f"http://127.0.0.1:{deaf_port()}/mcp", "timeoutSeconds": 5}
    with pytest.raises(ToolDownError, match="MCP server nobody"):
        await make_toolbox(nobody).open()
    with pytest.raises(ToolDownError, match="no-such-program"):
        await make_toolbox({"name": "x", "command": ["no-such-program"]}).open()
    assert (await make_toolbox().open()).listed == []


async def test_toolbox_waits_for_a_server_that_is_down(make_toolbox: MakeToolbox) -> None:
    server, outages = HttpServer(), Outages(serving=Serving(), problems=Problems())
    toolbox = WaitingToolbox(make_toolbox(over_http(server)), outages=outages)
    try:
        opening = asyncio.create_task(toolbox.open())
        await asyncio.to_thread(until, lambda: bool(outages), what="the outage")
        ((name, why),) = outages.known.items()
        assert (name, server.url in why) == ("MCP server calculator", True)
        assert not opening.done()
        await asyncio.to_thread(server.start)
        async with asyncio.timeout(HUNG_SECONDS):
            assert "add" in {tool.name for tool in (await opening).listed}
        assert outages.known == {}
    finally:
        await toolbox.close()
        server.stop()


async def test_an_image_of_a_server_is_stored_as_the_model_takes_it(
    tmp_path: Path, counters: Counters, http_server: HttpServer, stores: Stores
) -> None:
    images = RunImages(shared=SharedStores(stores, problems=Problems()), run="a-run")
    toolbox = Toolbox(
        [McpServer.model_validate(over_http(http_server))],
        secrets=tmp_path,
        longest=1000,
        counters=counters,
        images=tool_images(Images(), {}, side=28, images=images),
    )
    try:
        call = await (await toolbox.open()).call(wanted("draw", width=100, height=120))
    finally:
        await toolbox.close()
    assert (call.outcome, call.result) == ("answered", "a picture")
    (image,) = call.images
    assert (image.width, image.height) == (112, 112), "whole squares"
    png = ImageStore(stores.objects, run_prefix=stores.run_prefix("a-run")).get(image.sha256)
    with PIL.Image.open(io.BytesIO(png)) as opened:
        assert opened.size == (image.width, image.height)


async def test_without_images_the_policy_is_told_that_one_was_left_out(
    make_toolbox: MakeToolbox, http_server: HttpServer
) -> None:
    tools = await make_toolbox(over_http(http_server)).open()
    call = await tools.call(wanted("draw", width=9, height=9))
    assert (call.result, call.images) == ("a picture\n[image left out]", [])
