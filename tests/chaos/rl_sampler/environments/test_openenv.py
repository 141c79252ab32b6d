"""The published OpenEnv server beside our small one: the same game, the same episodes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rl_contracts.documents.rollout import StopReason
from rl_contracts.spec.agent.environment import Environment
from rl_sampler.completions.guard import open_outside
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.problems import Problems
from rl_sampler.environments.copies import Servers
from rl_sampler.environments.protocol import EnvironmentDownError
from rl_sampler.environments.server import EnvironmentServer
from rl_sampler.environments.session import Session
from rl_sampler.user_code.call import UserCodeError
from tests.chaos.rl_sampler.gateway.environments import python_of
from tests.network.openenv import FULL, MOST_STEPS, PARTIAL, SmallServer, serving
from tests.unit.rl_sampler.agents.scripted import call
from tests.unit.rl_sampler.environments.playing import Played, play_at
from tests.waiting import HUNG_SECONDS, until

HERE = Path(__file__).parent
SERVER = HERE / "programs" / "guessing_server.py"
KINDS = ("typed", "tools")


@contextlib.asynccontextmanager
async def published(kind: str) -> AsyncIterator[str]:
    """The URL of a server of the published package."""
    python = await asyncio.to_thread(python_of, "openenv", folder=HERE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(python, str(SERVER), str(port), kind)
    try:
        url = f"http://127.0.0.1:{port}"
        await _answers(url, process)
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _answers(url: str, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(HUNG_SECONDS), aiohttp.ClientSession() as http:
        while process.returncode is None:
            with contextlib.suppress(aiohttp.ClientError):
                async with http.get(f"{url}/health") as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.1)
    raise AssertionError("the server ended")


@contextlib.asynccontextmanager
async def either(which: str, kind: str) -> AsyncIterator[str]:
    """A server of the game: the published package's, or ours."""
    if which == "published":
        async with published(kind) as url:
            yield url
        return
    async with serving(SmallServer(tools=kind == "tools")) as url:
        yield url


def record(played: Played) -> tuple[Any, ...]:
    """What an episode has become, but for its times."""
    assert played.error is None, played.error
    assert played.member.environment is not None
    return (
        played.reason,
        [turn.reward for turn in played.member.turns],
        [
            (made.tool, made.outcome, made.result)
            for turn in played.member.turns
            for made in turn.calls
        ],
        [turn.error is not None for turn in played.member.turns],
        played.member.environment.done,
        played.member.environment.truncated,
        played.policy.contexts[-1],
    )


TEXTS = {
    "right": ["8", "5", "4"],
    "truncated": ["8", "7", "nothing", "0"],
    "json": ["no object", '{"message": 4}', '{"word": "4"}', '{"message": "4"}'],
}


async def test_typed_episodes_are_those_of_the_small_server() -> None:
    records: dict[str, list[tuple[Any, ...]]] = {}
    for which in ("published", "small"):
        async with either(which, "typed") as url:
            records[which] = [
                record(await play_at(url, script, action="Json" if name == "json" else "Text"))
                for name, script in TEXTS.items()
            ]
            wrong = await play_at(url, ["4"], textField="word")
            assert isinstance(wrong.error, UserCodeError)
    assert records["published"] == records["small"]
    right, truncated, _ = records["published"]
    assert right[:2] == (StopReason.STOP, [0.0, PARTIAL, FULL])
    assert truncated[0] is StopReason.TRUNCATED
    assert len(TEXTS["truncated"]) == MOST_STEPS


async def test_episodes_of_tool_calls_are_those_of_the_small_server() -> None:
    script = [
        call(tool="guess", number=8),
        f"{call(tool='guess', number=5)}\n{call(tool='guess', number=4)}",
    ]
    records = {}
    for which in ("published", "small"):
        async with either(which, "tools") as url:
            records[which] = record(await play_at(url, script, action="Tool"))
    assert records["published"] == records["small"]


async def test_a_typed_environment_offers_its_actions_as_a_tool() -> None:
    async with published("typed") as url:
        played = await play_at(url, [call(tool="act", message="4")], action="Tool")
    assert played.member.earned == FULL
    (tool,) = played.member.tools.listed
    assert list(tool.parameters["properties"]) == ["message"]


async def test_the_published_server_fails_and_has_no_room_as_the_small_one() -> None:
    async with published("typed") as url, open_outside() as http:
        broken = await play_at(url, ["5", "break"])
        assert isinstance(broken.error, EnvironmentDownError)
        assert "EXECUTION_ERROR: the game broke" in str(broken.error)
        held = [Session(http, url, headers={}, seconds=30) for _ in range(2)]
        async with held[0], held[1]:
            for session in held:
                await session.open()
                await session.reset({})
            asked: list[str] = []

            async def servers() -> list[str]:
                asked.append(url)
                return asked[-1:]

            waiting = asyncio.create_task(play_at(url, ["4"], servers=servers))
            # For its health, for a session, and again for a session.
            await asyncio.to_thread(until, lambda: len(asked) > 2, what="it to ask again")
            assert not waiting.done()
            await held[0].close()
            played = await waiting
    assert played.reason is StopReason.STOP


async def test_a_session_outlives_a_policy_that_thinks_for_long() -> None:
    """The server pings every 0.2 s, and gives up clients after 20 s more."""
    async with (
        published("typed") as url,
        open_outside() as http,
        Session(http, url, headers={}, seconds=30) as session,
    ):
        await session.open()
        await session.reset({"seed": 4})
        await asyncio.sleep(25.0)
        assert (await session.step({"message": "4"})).done
        assert (await session.state())["step_count"] == 1


async def test_copies_of_the_published_server_share_sessions_and_outlive_one_of_them() -> None:
    """Two copies with room for two sessions each, as pods of an image."""
    async with open_outside() as http, contextlib.AsyncExitStack() as others:
        dying = await others.enter_async_context(contextlib.AsyncExitStack())
        urls = [
            await dying.enter_async_context(published("typed")),
            await others.enter_async_context(published("typed")),
        ]
        environment = EnvironmentServer(
            Environment(image="game:1"),
            servers=fixed(urls),
            http=http,
            headers=HERE,
            longest=100,
            counters=Counters(),
            problems=Problems(),
        )
        sessions = [environment.session() for _ in range(4)]
        for session in sessions:
            await others.enter_async_context(session)
            await environment.begin(session, {"seed": 4})
        assert [session.url for session in sessions] == [urls[0], urls[0], urls[1], urls[1]]
        await dying.aclose()
        for session in sessions[:2]:
            with pytest.raises(EnvironmentDownError, match="closed the connection"):
                await session.step({"message": "4"})
        assert (await sessions[2].step({"message": "4"})).done
        await sessions[3].close()
        async with environment.session() as again:
            await environment.begin(again, {"seed": 4})
            assert again.url == urls[1]


def fixed(urls: list[str]) -> Servers:
    async def servers() -> list[str]:
        return urls

    return servers


async def test_a_server_that_dies_is_an_infrastructure_error() -> None:
    async with open_outside() as http:
        session = Session(http, "", headers={}, seconds=30)
        async with session:
            async with published("typed") as url:
                session.url = url
                await session.open()
                await session.reset({})
            with pytest.raises(EnvironmentDownError, match="closed the connection"):
                await session.step({"message": "4"})
