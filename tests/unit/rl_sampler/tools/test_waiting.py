from __future__ import annotations

import asyncio
from typing import cast

import pytest

from rl_sampler.completions.outages import Outages
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving
from rl_sampler.tools import waiting
from rl_sampler.tools.tool import ToolDownError, ToolsRefusedError
from rl_sampler.tools.toolbox import Toolbox, Tools
from rl_sampler.tools.waiting import WaitingToolbox
from tests.waiting import until

TOOLS = Tools({}, longest=1, counters=Counters())


class Scripted:
    """A toolbox that opens as it is told; what it is told last stays."""

    def __init__(self, outages: Outages, *steps: Exception | Tools) -> None:
        self.outages, self.steps, self.seen = outages, list(steps), list[list[str]]()

    async def open(self) -> Tools:
        self.seen.append(list(self.outages.known))
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if isinstance(step, Exception):
            raise step
        return step

    async def close(self) -> None:
        self.steps = [ToolsRefusedError("closed")]


def down(server: str) -> ToolDownError:
    return ToolDownError(f"{server} does not answer", server=server)


@pytest.fixture(autouse=True)
def _no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "FIRST_BACKOFF_SECONDS", 0.0)


@pytest.fixture
def outages() -> Outages:
    return Outages(serving=Serving(), problems=Problems())


def patient(toolbox: Scripted) -> WaitingToolbox:
    return WaitingToolbox(cast(Toolbox, toolbox), outages=toolbox.outages)


async def test_outage_names_each_server_until_all_answer(outages: Outages) -> None:
    toolbox = Scripted(outages, down("one"), down("one"), down("two"), TOOLS)
    assert await patient(toolbox).open() is TOOLS
    one, two = ["MCP server one"], ["MCP server two"]
    assert toolbox.seen == [[], one, one, two, []]
    assert outages.known == {}


async def test_outage_of_what_is_no_server_of_the_toolbox_has_a_name_of_its_own(
    outages: Outages,
) -> None:
    gone = ToolDownError("http://s does not answer", kind="search service")
    toolbox = Scripted(outages, gone, TOOLS)
    assert await patient(toolbox).open() is TOOLS
    assert toolbox.seen == [[], ["search service"], []]


async def test_all_groups_wait_while_a_single_task_polls(outages: Outages) -> None:
    toolbox = Scripted(outages, *(down("one") for _ in range(4)), TOOLS)
    wrapped = patient(toolbox)
    assert await asyncio.gather(*(wrapped.open() for _ in range(3))) == [TOOLS] * 3
    assert len(toolbox.seen) == 3 + 2 + 3, "each once, then a poll after another, then each again"


async def test_refused_tools_are_raised_after_an_outage(outages: Outages) -> None:
    toolbox = Scripted(outages, down("one"), ToolsRefusedError("no tools"))
    with pytest.raises(ToolsRefusedError, match="no tools"):
        await patient(toolbox).open()
    assert outages.known == {}


async def test_close_ends_the_polling(outages: Outages) -> None:
    wrapped = patient(Scripted(outages, down("one")))
    opening = asyncio.create_task(wrapped.open())
    await asyncio.to_thread(until, lambda: bool(outages), what="the outage")
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    await wrapped.close()
    assert outages.known == {}


async def test_an_environments_outage_has_its_own_name(outages: Outages) -> None:
    toolbox = Scripted(outages, down(""), TOOLS)
    patient = WaitingToolbox(toolbox, outages=outages, kind="environment")
    assert await patient.open() is TOOLS
    assert toolbox.seen == [[], ["environment"], []]
