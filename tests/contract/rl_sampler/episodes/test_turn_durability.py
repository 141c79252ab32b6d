"""Turns that outlive their sampler: real agents, MCP server and stores, and an engine by script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.task import TaskState
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.contract.rl_sampler.episodes.calling_engine import CallingEngine
from tests.contract.rl_sampler.episodes.killed import (
    DONE_TURNS,
    GROUP,
    KILLED_TURN,
    Killed,
    kill_and_go_on,
    saved_turns,
)
from tests.contract.rl_sampler.episodes.several_turns import with_tools
from tests.contract.rl_sampler.fork_server import ForkServer
from tests.contract.rl_sampler.pods import Pod, new_pod
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.contract.rl_sampler.tools.tool_servers import HttpServer
from tests.waiting import until

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


@pytest.mark.parametrize("durability", ["Turns", "None"])
def test_the_next_holder_goes_on_with_the_turn_in_which_the_sampler_died(
    durability: str,
    tmp_path: Path,
    trainer: ScriptedTrainer,
    tiny_model: Path,
    store_settings: StoreSettings,
    stores: Stores,
    fork_server: ForkServer,
    memory: HttpServer,
) -> None:
    durable = durability == "Turns"
    sections = with_tools(trainer, tiny_model, maxTurns=TURNS, durability=durability)
    server: dict[str, Any] = {"name": "memory", "url": memory.url, "timeoutSeconds": 60}
    sections["agent"]["mcpServers"] = [server | ({"replayable": True} if durable else {})]
    sections["agent"]["sampling"] = {"maxTokensPerTurn": 100, "maxContextTokens": 2000}

    def a_pod(name: str, engine: CallingEngine) -> Pod:
        return new_pod(
            tmp_path / name,
            engine_url=engine.url,
            settings=store_settings,
            stores=stores,
            sections=sections,
            launch=fork_server.launch,
        )

    dying = CallingEngine(tiny_model, TURNS, held_turn=KILLED_TURN)
    living = CallingEngine(tiny_model, TURNS)
    with dying.listening(), living.listening():
        first, second = a_pod("pod-a", dying), a_pod("pod-b", living)
        try:
            first.serve_first_of(trainer)
            (task,) = trainer.insert(1, group_size=GROUP)
            until(
                lambda: dying.asked.count(KILLED_TURN) == GROUP,
                what="the third turns",
                seen=lambda: dying.asked,
            )
            saved = until(lambda: saved_turns(stores, task), what="the saves") if durable else []
            kill_and_go_on(trainer, task, first=first, second=second)
        finally:
            first.end()
            second.end()

    rollouts = trainer.chosen([task])
    assert stores.tasks.get([task])[task].state is TaskState.DONE
    assert [(each.attempt, len(each.turns)) for each in rollouts] == [(2, TURNS)] * GROUP
    every_turn = [str(turn) for turn in range(1, TURNS) for _ in range(GROUP)]
    if not durable:
        assert sorted(set(living.asked)) == [1, 2, 3, 4, 5]
        assert remembered(rollouts) == sorted([*every_turn, *"1122"]), "called a second time"
        assert {(each.continues, each.replayed_turns) for each in rollouts} == {("", 0)}
        return
    Killed(before=saved, rollouts=rollouts, living=living).check(turns=TURNS)
    assert remembered(rollouts) == every_turn, "no call was made twice"
    before = {each.member: each for each in saved}
    for rollout in rollouts:
        assert rollout.turns[:DONE_TURNS] == before[rollout.member].turns
        # Each token keeps its version; the oldest one decides how old the episode is.
        assert [span.version for span in rollout.spans] == [1, 1, 2, 2, 2]
        assert rollout.oldest_step == 0
