"""Copies of an environment: an episode goes to one that has room, and a dead one is passed over."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.spec.agent.environment import Environment
from rl_sampler.completions.guard import open_outside
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.problems import Problems
from rl_sampler.environments.copies import at_address
from rl_sampler.environments.protocol import EnvironmentDownError
from rl_sampler.environments.server import EnvironmentServer
from tests.network.openenv import SmallServer, serving
from tests.waiting import until

NOBODY = "http://127.0.0.1:9"


@contextlib.asynccontextmanager
async def copies(urls: list[str], **options: Any) -> AsyncIterator[EnvironmentServer]:
    """Servers that are asked in this order."""

    async def servers() -> list[str]:
        return urls

    section = Environment.model_validate({"image": "game:1", "timeoutSeconds": 5, **options})
    async with open_outside() as http:
        yield EnvironmentServer(
            section,
            servers=servers,
            http=http,
            headers=Path("/none"),
            longest=9,
            counters=Counters(),
            problems=Problems(),
        )


async def test_sessions_fill_copies_one_after_another() -> None:
    first, second = SmallServer(room=1), SmallServer(room=1)
    async with (
        serving(first) as first_url,
        serving(second) as other,
        copies([first_url, other]) as environment,
        environment.session() as here,
        environment.session() as there,
    ):
        await environment.begin(here, {})
        await environment.begin(there, {})
        assert (first.sessions, second.sessions) == (1, 1)
        third = environment.session()
        async with third:
            waiting = asyncio.create_task(environment.begin(third, {}))
            await asyncio.to_thread(
                until, lambda: first.refused > 1 and second.refused > 0, what="two rounds"
            )
            assert not waiting.done()
            await there.close()
            await waiting
            assert third.url == other


async def test_a_copy_that_is_gone_is_passed_over() -> None:
    server = SmallServer()
    async with (
        serving(server) as url,
        copies([NOBODY, url], action="Tool") as environment,
    ):
        assert [tool.name for tool in (await environment.open()).listed] == ["act"]
        async with environment.session() as session:
            await environment.begin(session, {})
    assert server.closed == 2


async def test_a_full_copy_is_waited_for_while_the_others_are_gone() -> None:
    server = SmallServer(refusals=1)
    async with (
        serving(server) as url,
        copies([url, NOBODY]) as environment,
        environment.session() as session,
    ):
        await environment.begin(session, {})
    assert server.opened == 1


async def test_copies_that_are_all_gone_are_down() -> None:
    async with copies([NOBODY, NOBODY]) as environment:
        with pytest.raises(EnvironmentDownError, match=":9 cannot be reached"):
            await environment.open()
        async with environment.session() as session:
            with pytest.raises(EnvironmentDownError, match="cannot be reached"):
                await environment.begin(session, {})


async def test_a_name_is_looked_up_for_each_episode() -> None:
    urls = await at_address("localhost:8000")()
    assert "http://127.0.0.1:8000" in urls
    assert set(urls) <= {"http://127.0.0.1:8000", "http://[::1]:8000"}
    with pytest.raises(EnvironmentDownError, match="no pod of the environment's image is ready"):
        await at_address("nobody.invalid:8000")()
