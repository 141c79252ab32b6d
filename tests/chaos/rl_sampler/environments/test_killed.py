"""Kills of samplers and environments in more phases of episodes whose turns are saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rl_contracts.stores.clients.settings import StoreSettings
from tests.contract.rl_sampler.episodes.calling_engine import CallingEngine
from tests.contract.rl_sampler.episodes.killed import (
    DONE_TURNS,
    GROUP,
    KILLED_TURN,
    Killed,
    play_with_a_kill,
)
from tests.contract.rl_sampler.fork_server import ForkServer
from tests.contract.rl_sampler.pods import Pod
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.openenv import MOST_STEPS, SmallServer, served_in_a_thread

STEPS_BEFORE = DONE_TURNS * GROUP
Play = Callable[..., Killed]


@pytest.fixture
def play(
    tmp_path: Path,
    trainer: ScriptedTrainer,
    tiny_model: Path,
    store_settings: StoreSettings,
    fork_server: ForkServer,
) -> Play:
    def play_in(
        server: SmallServer,
        *,
        held: bool,
        killed_when: Callable[[CallingEngine], bool],
        then: Callable[[Pod], None] = lambda _: None,
    ) -> Killed:
        with served_in_a_thread(server) as url:
            return play_with_a_kill(
                {"kind": "Environment", "environment": {"url": url, "replayable": True}},
                held=held,
                killed_when=killed_when,
                then=then,
                folder=tmp_path,
                trainer=trainer,
                model=tiny_model,
                settings=store_settings,
                fork_server=fork_server,
            )

    return play_in


def test_a_sampler_that_dies_while_the_environment_acts(play: Play) -> None:
    server = SmallServer(faults=[*[""] * STEPS_BEFORE, *["hang"] * GROUP])
    killed = play(
        server,
        held=False,
        killed_when=lambda _: len(server.actions) == STEPS_BEFORE + GROUP,
    )
    killed.check(turns=MOST_STEPS)


def test_an_environment_that_dies_while_turns_are_replayed(play: Play) -> None:
    server = SmallServer()
    killed = play(
        server,
        held=True,
        killed_when=lambda engine: engine.asked.count(KILLED_TURN) == GROUP,
        then=lambda _: server.faults.append("die"),
    )
    killed.check(turns=MOST_STEPS)
    attempts = sorted(rollout.attempt for rollout in killed.rollouts)
    assert attempts == [2, 3], "one was replayed once more"
