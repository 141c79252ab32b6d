"""The GUI example: typed actions in a real Chromium, and what its scorer makes of the page."""

from __future__ import annotations

import asyncio
import importlib.util
import io
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import PIL.Image
import pytest

from rl_contracts.documents.rollout import ToolCall
from rl_contracts.spec.agent.tools import McpServer
from rl_contracts.spec.data import Images
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.files.images import ImageStore
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.images import RunImages
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.shared_stores import SharedStores
from rl_sampler.scorers.response import Response
from rl_sampler.tools.formats import WantedCall
from rl_sampler.tools.images import tool_images
from rl_sampler.tools.toolbox import Toolbox, Tools
from tests.contract.rl_sampler.tools import gui_server

RUN, SIDE, PLACE = "a-gui-run", 112, 56
PAGE = 417
BUTTONS = {"blue": (0, 0), "green": (1, 0), "red": (1, 1)}
"""Where page 417 has them: columns and rows."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with gui_server.running(tmp_path_factory.mktemp("gui") / "server.log") as url:
        yield url


@asynccontextmanager
async def episodes(url: str, stores: Stores, folder: Path) -> AsyncIterator[Tools]:
    server = {"name": "browser", "url": url, "scope": "Episode", "timeoutSeconds": 60}
    images = RunImages(shared=SharedStores(stores, problems=Problems()), run=RUN)
    toolbox = Toolbox(
        [McpServer.model_validate(server)],
        secrets=folder,
        longest=1000,
        counters=Counters(),
        images=tool_images(Images(), {}, side=28, images=images),
    )
    try:
        yield await toolbox.open()
    finally:
        await toolbox.close()


async def act(tools: Tools, tool: str, **arguments: Any) -> ToolCall:
    return await tools.call(WantedCall(tool=tool, arguments=json.dumps(arguments)))


def scorer() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "gui_scorer", gui_server.EXAMPLE / "gui_scorer.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reward(*turns: tuple[str, str]) -> float:
    messages = [{"role": role, "content": content} for role, content in turns]
    response = Response(text="", answer=None, reference="green", messages=messages)
    return float(scorer().pressed(response))


async def test_actions_change_the_page_and_the_policy_is_shown_the_screen(
    url: str, stores: Stores, tmp_path: Path
) -> None:
    async with episodes(url, stores, tmp_path) as offered:
        assert {tool.name for tool in offered.listed} == {
            *("open", "click", "type", "scroll", "screenshot", "done")
        }
        mine, other = offered.of_episode(), offered.of_episode()
        early = await act(mine, "click", x=1, y=1)
        assert (early.outcome, "call open first" in early.result) == ("failed", True)
        opened = await act(mine, "open", page=PAGE)
        assert (opened.outcome, opened.result) == ("answered", "{}")
        await act(other, "open", page=PAGE)
        for colour, (column, row) in BUTTONS.items():
            pressed = await act(mine, "click", x=PLACE * column + 9, y=PLACE * row + 50)
            assert json.loads(pressed.result) == {"pressed": colour}
        outside = await act(mine, "click", x=SIDE, y=0)
        assert outside.outcome == "failed"
        scrolled = await act(mine, "scroll", down=SIDE)
        assert scrolled.images != opened.images
        await act(mine, "click", x=40, y=40)
        typed = await act(mine, "type", text="a word")
        assert json.loads(typed.result) == {"pressed": "red", "typed": "a word"}
        untouched = await act(other, "screenshot")
        assert (untouched.result, untouched.images) == ("{}", opened.images)
        await asyncio.gather(mine.close(), other.close())
    (image,) = opened.images
    png = ImageStore(stores.objects, run_prefix=stores.run_prefix(RUN)).get(image.sha256)
    with PIL.Image.open(io.BytesIO(png)) as screen:
        assert screen.size == (SIDE, SIDE), "as the model takes it"
        for column, row in BUTTONS.values():
            assert screen.getpixel((PLACE * column + 28, PLACE * row + 28)) != (255, 255, 255)


def test_the_reward_is_the_state_that_the_last_tool_named() -> None:
    state = json.dumps({"pressed": "green"})
    assert reward(("tool", "{}"), ("tool", state), ("assistant", "done")) == 1
    assert reward(("tool", state), ("tool", json.dumps({"pressed": "red"}))) == 0
    assert reward(("tool", "{}"), ("assistant", state)) == 0, "only tools name a state"
    assert reward(("tool", state), ("tool", "it failed")) == 1
    assert reward() == 0
