"""Turns that outlive their sampler: real agents, MCP server and stores, and an engine by script."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rl_contracts.documents.rollout import Rollout
from tests.contract.rl_sampler.episodes.killed import DONE_TURNS, GROUP, PlayKilled
from tests.contract.rl_sampler.tools.tool_servers import HttpServer
from tests.examples import first

TURNS = 5


@pytest.fixture
def memory() -> Iterator[HttpServer]:
    server = HttpServer()
    server.start()
    yield server
    server.stop()


def remembered(rollouts: list[Rollout]) -> list[str]:
    """All texts that the server was given, by the longest of its answers."""
    results = [call.result for each in rollouts for turn in each.turns for call in turn.calls]
    return sorted(max(results, key=len).split())


@pytest.mark.parametrize("durability", first(1, ["Turns", "None"]))
def test_the_next_holder_goes_on_with_the_turn_in_which_the_sampler_died(
    durability: str, play_killed: PlayKilled, memory: HttpServer
) -> None:
    durable = durability == "Turns"
    server: dict[str, Any] = {"name": "memory", "url": memory.url, "timeoutSeconds": 60}
    if durable:
        server["replayable"] = True
    killed = play_killed(
        {
            "kind": "ToolLoop",
            "maxTurns": TURNS,
            "durability": durability,
            "mcpServers": [server],
        },
        calls=TURNS,
    )
    rollouts, living = killed.rollouts, killed.living
    assert [(each.attempt, len(each.turns)) for each in rollouts] == [(2, TURNS)] * GROUP
    every_turn = [str(turn) for turn in range(1, TURNS) for _ in range(GROUP)]
    if not durable:
        assert sorted(set(living.asked)) == [1, 2, 3, 4, 5]
        assert remembered(rollouts) == sorted([*every_turn, *"1122"]), "called a second time"
        assert {(each.continues, each.replayed_turns) for each in rollouts} == {("", 0)}
        return
    killed.check(turns=TURNS)
    assert remembered(rollouts) == every_turn, "no call was made twice"
    before = {each.member: each for each in killed.before}
    for rollout in rollouts:
        assert rollout.turns[:DONE_TURNS] == before[rollout.member].turns
        # Each token keeps its version; the oldest one decides how old the episode is.
        assert [span.version for span in rollout.spans] == [1, 1, 2, 2, 2]
        assert rollout.oldest_step == 0
