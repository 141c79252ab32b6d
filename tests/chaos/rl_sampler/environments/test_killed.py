"""Kills of sampler and environment in more phases of an episode whose turns are saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rl_contracts.stores.clients.settings import StoreSettings
from tests.contract.rl_sampler.environments.killed import (
    DONE_TURNS,
    GROUP,
    KILLED_TURN,
    check_continued,
    play_with_a_kill,
)
from tests.contract.rl_sampler.fork_server import ForkServer
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.openenv import SmallServer

STEPS_BEFORE = DONE_TURNS * GROUP


@pytest.fixture
def world(
    tmp_path: Path,
    trainer: ScriptedTrainer,
    tiny_model: Path,
    store_settings: StoreSettings,
    fork_server: ForkServer,
) -> dict[str, Any]:
    return {
        "folder": tmp_path,
        "trainer": trainer,
        "model": tiny_model,
        "settings": store_settings,
        "fork_server": fork_server,
    }


def test_a_sampler_that_dies_while_the_environment_acts(world: dict[str, Any]) -> None:
    server = SmallServer(faults=[*[""] * STEPS_BEFORE, *["hang"] * GROUP])
    played = play_with_a_kill(
        server,
        held=False,
        killed_when=lambda _: len(server.actions) == STEPS_BEFORE + GROUP,
        **world,
    )
    check_continued(*played)


def test_an_environment_that_dies_while_turns_are_replayed(world: dict[str, Any]) -> None:
    server = SmallServer()
    before, rollouts, living = play_with_a_kill(
        server,
        held=True,
        killed_when=lambda engine: engine.asked.count(KILLED_TURN) == GROUP,
        then=lambda: server.faults.append("die"),
        **world,
    )
    check_continued(before, rollouts, living)
    assert sorted(rollout.attempt for rollout in rollouts) == [2, 3], "one was replayed once more"
