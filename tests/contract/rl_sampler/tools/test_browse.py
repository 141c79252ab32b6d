"""Long tool results are read by a model, over HTTP, and outages of it are sat out."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rl_contracts.documents.sampler import BROWSE_MODEL
from rl_contracts.spec.agent.agents import Agent
from rl_sampler.completions.errors import NoCompletionError
from rl_sampler.completions.failover import Failovers
from rl_sampler.completions.outages import Outages
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving
from rl_sampler.tools.browse import browser_of
from rl_sampler.tools.formats import WantedCall
from rl_sampler.tools.tool import ToolsRefusedError
from rl_sampler.tools.toolbox import Toolbox, Tools
from tests.code_container import in_thread
from tests.contract.rl_sampler.episodes.several_turns import SERVER
from tests.contract.rl_sampler.scorers.judges import JudgeServer, judging
from tests.samples.manifests import a_job
from tests.waiting import until

SUM = WantedCall(tool="add", arguments='{"a": 20, "b": 22}')
NOTHING = WantedCall(tool="divide", arguments='{"a": 1, "b": 0}')


@pytest.fixture(scope="module")
def server() -> Iterator[JudgeServer]:
    with judging() as started:
        yield started


class Reading:
    """A toolbox with a browse model."""

    def __init__(self, failovers: Failovers, folder: Path, counters: Counters) -> None:
        self.failovers, self._folder, self._counters = failovers, folder, counters
        self._made: list[Toolbox] = []
        self._containers = ExitStack()

    async def tools(self, *endpoints: dict[str, Any], over: int = 1, **options: Any) -> Tools:
        """Of the calculator; results of more than ``over`` characters are read."""
        section = {
            "kind": "ToolLoop",
            "mcpServers": [
                {
                    "name": "calculator",
                    "command": [sys.executable, str(SERVER)],
                    "timeoutSeconds": 300,
                }
            ],
            "browse": {"endpoints": list(endpoints), "overCharacters": over, **options},
        }
        agent = Agent.model_validate(section)
        folder = self._folder / f"container-{len(self._made)}"
        folder.mkdir()
        toolbox = Toolbox(
            agent.mcp_servers,
            secrets=self._folder,
            longest=2000,
            counters=self._counters,
            code=self._containers.enter_context(in_thread(folder, a_job(agent=section)["spec"])),
            browser=browser_of(agent, self.failovers),
        )
        self._made.append(toolbox)
        return await toolbox.open()

    async def close(self) -> None:
        await asyncio.gather(*(toolbox.close() for toolbox in self._made))
        self._containers.close()


@pytest.fixture
async def reading(tmp_path: Path) -> AsyncIterator[Reading]:
    counters = Counters()
    async with aiohttp.ClientSession() as session:
        failovers = Failovers(
            session=session,
            secrets=tmp_path,
            counters=counters,
            outages=Outages(serving=Serving(), problems=Problems()),
        )
        made = Reading(failovers, tmp_path, counters)
        yield made
        await made.close()
        await failovers.close()


async def test_long_result_is_summarised_by_the_first_model_that_answers(
    reading: Reading, server: JudgeServer
) -> None:
    endpoints = [server.endpoint(model) for model in ("broken", "silent", "echo", "steady")]
    tools = await reading.tools(*endpoints)
    answer = await tools.call(SUM)
    assert answer.outcome == "answered"
    for shown in ("the tool add", SUM.arguments, "<result>\n42\n</result>"):
        assert shown in answer.result
    failed = await tools.call(NOTHING)
    assert (failed.outcome, "divided by 0" in failed.result) == ("failed", True)
    assert "<result>" not in failed.result, "a tool's failure is told as it is"


async def test_short_result_is_not_summarised(reading: Reading, server: JudgeServer) -> None:
    tools = await reading.tools(server.endpoint("echo"), over=2)
    assert (await tools.call(SUM)).result == "42"


async def test_unusable_browse_replies_raise_no_completion(
    reading: Reading, server: JudgeServer
) -> None:
    tools = await reading.tools(server.endpoint("silent"), server.endpoint("strict"))
    with pytest.raises(NoCompletionError, match=BROWSE_MODEL):
        await tools.call(SUM)


@pytest.mark.soak
async def test_browse_model_outage_is_waited_for(reading: Reading, server: JudgeServer) -> None:
    tools = await reading.tools(server.endpoint("echo"))
    outages = reading.failovers.outages
    server.kill()
    waiting = asyncio.create_task(tools.call(SUM))
    try:
        await asyncio.to_thread(until, lambda: bool(outages), what="the outage")
        assert not waiting.done()
    finally:
        server.start()
    assert "42" in (await waiting).result
    assert not outages


async def test_only_named_tools_are_read_and_the_policy_says_what_for(
    reading: Reading, server: JudgeServer
) -> None:
    tools = await reading.tools(
        server.endpoint("echo"), tools=["add"], purposeArgument="purpose", purpose="to know it all"
    )
    offered = {tool.name: set(tool.parameters["properties"]) for tool in tools.listed}
    assert "purpose" in offered["add"]
    assert all("purpose" not in names for name, names in offered.items() if name != "add")
    call = WantedCall(tool="add", arguments='{"a": 20, "b": 22, "purpose": "its last digit"}')
    answer = await tools.call(call)
    assert answer.outcome == "answered"
    assert "for this purpose: its last digit" in answer.result
    assert "for this purpose: to know it all" in (await tools.call(SUM)).result
    other = await tools.call(WantedCall(tool="divide", arguments='{"a": 84, "b": 2}'))
    assert "<result>" not in other.result


async def test_a_tool_that_is_not_offered_cannot_be_read(
    reading: Reading, server: JudgeServer
) -> None:
    with pytest.raises(ToolsRefusedError, match=r"browse\.tools names fetch, and no tool"):
        await reading.tools(server.endpoint("echo"), tools=["fetch"])
