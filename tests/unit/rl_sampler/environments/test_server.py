from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rl_contracts.spec.agent.environment import Environment
from rl_sampler.completions.guard import open_outside
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.problems import Problems
from rl_sampler.environments import server as server_module
from rl_sampler.environments.copies import at_url
from rl_sampler.environments.protocol import EnvironmentDownError
from rl_sampler.environments.server import MAX_SCHEMA_BYTES, EnvironmentServer
from tests.network.openenv import SmallServer, serving
from tests.waiting import until


def server_at(
    url: str,
    http: aiohttp.ClientSession,
    *,
    headers: Path = Path("/none"),
    problems: Problems | None = None,
    **options: Any,
) -> EnvironmentServer:
    return EnvironmentServer(
        Environment.model_validate({"url": url, **options}),
        servers=at_url(url),
        http=http,
        headers=headers,
        longest=9,
        counters=Counters(),
        problems=problems or Problems(),
    )


@pytest.mark.parametrize(
    ("status", "message"), [(503, "answers 503"), (403, "answers 403: check headersSecret")]
)
async def test_a_server_that_does_not_answer_is_down(status: int, message: str) -> None:
    server = SmallServer(health=status)
    async with serving(server) as url, open_outside() as http:
        asked = server_at(url, http)
        with pytest.raises(EnvironmentDownError, match=message):
            await asked.open()
        server.health = 404  # it speaks, though not of its health
        assert (await asked.open()).listed == []
    assert server.opened == 0, "no session is spent on the question"


async def test_a_server_that_came_back_lists_its_tools_again() -> None:
    server = SmallServer()
    async with serving(server) as url, open_outside() as http:
        asked = server_at(url, http, action="Tool")
        assert [tool.name for tool in (await asked.open()).listed] == ["act"]
        server.tools = True
        assert [tool.name for tool in (await asked.open()).listed] == ["act"]
        server.health = 500
        with pytest.raises(EnvironmentDownError):
            await asked.open()
        server.health = 200
        assert [tool.name for tool in (await asked.open()).listed] == ["guess"]
        assert asked.has_tools


@pytest.fixture
def short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "FIRST_BACKOFF_SECONDS", 0.001)


@pytest.mark.usefixtures("short_backoff")
async def test_groups_wait_for_room_to_list_the_tools_and_one_lists_them_for_all() -> None:
    server = SmallServer(tools=True, refusals=3)
    async with serving(server) as url, open_outside() as http:
        asked = server_at(url, http, action="Tool")
        opened = await asyncio.gather(*(asked.open() for _ in range(3)))
    assert [[tool.name for tool in tools.listed] for tools in opened] == [["guess"]] * 3
    assert (server.refused, server.opened) == (3, 1)


async def test_a_server_that_never_has_room_to_list_its_tools_is_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "BUSY_SECONDS", 0.01)
    server = SmallServer(room=0)
    async with serving(server) as url, open_outside() as http:
        asked = server_at(url, http, action="Tool")
        failed = await asyncio.gather(*(asked.open() for _ in range(3)), return_exceptions=True)
    assert [type(error) for error in failed] == [EnvironmentDownError] * 3
    assert all("no room for a session for" in str(error) for error in failed)
    assert server.refused == 1, "the groups wait together, not one behind the other"


@pytest.mark.usefixtures("short_backoff")
async def test_a_group_that_ends_does_not_end_the_listing_of_the_others() -> None:
    server, problems = SmallServer(tools=True, room=0), Problems()
    async with serving(server) as url, open_outside() as http:
        asked = server_at(url, http, action="Tool", problems=problems)
        groups = [asyncio.create_task(asked.open()) for _ in range(3)]
        await asyncio.to_thread(until, lambda: bool(problems.topics), what="the problem")
        assert "has no room for a session" in str(problems)
        groups[0].cancel()
        await asyncio.wait([groups[0]])
        server.room = None
        for group in groups[1:]:
            assert [tool.name for tool in (await group).listed] == ["guess"]
    assert problems.topics == []


@pytest.mark.usefixtures("short_backoff")
async def test_close_ends_the_listing() -> None:
    problems = Problems()
    async with serving(SmallServer(room=0)) as url, open_outside() as http:
        asked = server_at(url, http, action="Tool", problems=problems)
        group = asyncio.create_task(asked.open())
        await asyncio.to_thread(until, lambda: bool(problems.topics), what="the problem")
        await asked.close()
        await asyncio.wait([group])
    assert group.cancelled()
    assert problems.topics == []


async def test_a_server_without_room_after_an_outage_keeps_its_tools_until_it_lists_them() -> None:
    server = SmallServer()
    async with serving(server) as url, open_outside() as http:
        asked = server_at(url, http, action="Tool")
        await asked.open()
        server.health = 500
        with pytest.raises(EnvironmentDownError):
            await asked.open()
        server.health, server.tools = 200, True
        for room, name, refused in ((0, "act", 1), (0, "act", 2), (None, "guess", 2)):
            server.room = room
            assert [tool.name for tool in (await asked.open()).listed] == [name]
            assert server.refused == refused
        opened = server.opened
        await asked.open()
        assert server.opened == opened, "they are listed once"


async def test_a_schema_that_comes_in_parts_is_read_to_its_end_within_its_bound() -> None:
    server = SmallServer(described="d" * 900_000)
    async with serving(server) as url, open_outside() as http:
        asked = server_at(url, http, action="Tool")
        (tool,) = (await asked.open()).listed
        assert tool.description == server.described
        server.described, asked._tools = "d" * MAX_SCHEMA_BYTES, None
        with pytest.raises(EnvironmentDownError, match="without the schema of actions"):
            await asked.open()


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://169.254.169.254"])
async def test_an_address_that_leads_nowhere_is_down(url: str) -> None:
    async with open_outside() as http:
        asked = server_at(url, http)
        with pytest.raises(EnvironmentDownError, match="cannot be reached"):
            await asked.open()
        async with asked.session() as session:
            with pytest.raises(EnvironmentDownError, match="cannot be reached"):
                await asked.begin(session, {})


async def test_headers_do_not_follow_a_redirect(tmp_path: Path) -> None:
    (tmp_path / "X-Key").write_text("secret")
    other = SmallServer()
    async with (
        serving(other) as there,
        serving(SmallServer(moved_to=there)) as url,
        open_outside(redirects=False) as http,
    ):
        asked = server_at(url, http, headers=tmp_path, headersSecret="keys")
        with pytest.raises(EnvironmentDownError, match="redirects"):
            await asked.open()
        async with asked.session() as session:
            with pytest.raises(EnvironmentDownError, match="redirects"):
                await asked.begin(session, {})
    assert other.headers == []


@pytest.mark.parametrize("value", [b"a\nb", b"a\xff"])
async def test_a_secret_that_holds_no_header_is_an_outage_by_name(
    value: bytes, tmp_path: Path
) -> None:
    (tmp_path / "X-Key").write_bytes(value)
    async with open_outside(redirects=False) as http:
        asked = server_at("http://127.0.0.1:9", http, headers=tmp_path, headersSecret="keys")
        with pytest.raises(EnvironmentDownError, match="key X-Key of headersSecret"):
            await asked.open()
        with pytest.raises(EnvironmentDownError, match="key X-Key of headersSecret"):
            asked.session()


async def test_an_environment_that_lists_no_tool_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.network.openenv.TOOL", {})
    async with serving(SmallServer(tools=True)) as url, open_outside() as http:
        asked = server_at(url, http, action="Tool")
        with pytest.raises(EnvironmentDownError, match="lists no tool"):
            await asked.open()
