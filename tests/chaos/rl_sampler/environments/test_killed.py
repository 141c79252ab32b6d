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
    PlayKilled,
    all_in_the_third_turn,
    sections_of,
)
from tests.contract.rl_sampler.fork_server import ForkServer
from tests.contract.rl_sampler.pods import Pod, new_pod
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.openenv import MOST_STEPS, SmallServer, served_in_a_thread
from tests.waiting import until


@pytest.fixture
def play(play_killed: PlayKilled) -> PlayKilled:
    def play_in(
        server: SmallServer,
        *,
        held: bool,
        killed_when: Callable[[CallingEngine], bool],
        then: Callable[[Pod], None] = lambda _: None,
    ) -> Killed:
        with served_in_a_thread(server) as url:
            return play_killed(
                {"kind": "Environment", "environment": {"url": url, "replayable": True}},
                held=held,
                killed_when=killed_when,
                then=then,
            )

    return play_in


def test_a_sampler_that_dies_while_the_environment_acts(play: PlayKilled) -> None:
    server = SmallServer(faults_at={KILLED_TURN: ["hang"] * GROUP})
    killed = play(
        server,
        held=False,
        killed_when=lambda _: len(server.actions) == KILLED_TURN * GROUP,
    )
    killed.check(turns=MOST_STEPS)


def test_an_environment_that_dies_costs_one_response_of_each_member(
    tmp_path: Path,
    trainer: ScriptedTrainer,
    tiny_model: Path,
    store_settings: StoreSettings,
    fork_server: ForkServer,
) -> None:
    """No sampler dies: the same one goes on in other sessions, behind the turns that it saved."""
    server = SmallServer(faults_at={KILLED_TURN: ["die"] * GROUP})
    engine = CallingEngine(tiny_model, 0)
    with served_in_a_thread(server) as url, engine.listening():
        agent = {"kind": "Environment", "environment": {"url": url, "replayable": True}}
        pod = new_pod(
            tmp_path / "pod",
            engine_url=engine.url,
            settings=store_settings,
            stores=trainer.stores,
            sections=sections_of(agent, trainer, tiny_model),
            launch=fork_server.launch,
        )
        try:
            pod.serve_first_of(trainer)
            tasks = trainer.insert(1, group_size=GROUP)
            until(lambda: trainer.all_done(tasks), what="the group")
        finally:
            pod.end()
    rollouts = trainer.chosen(tasks)
    replayed = [(each.attempt, each.replayed_turns, len(each.turns)) for each in rollouts]
    assert replayed == [(2, DONE_TURNS, MOST_STEPS)] * GROUP
    assert sorted(engine.asked) == sorted([*range(1, MOST_STEPS + 1), KILLED_TURN] * GROUP)


def test_an_environment_that_dies_while_turns_are_replayed(play: PlayKilled) -> None:
    server = SmallServer()
    killed = play(
        server,
        held=True,
        killed_when=all_in_the_third_turn,
        then=lambda _: server.faults.append("die"),
    )
    killed.check(turns=MOST_STEPS)
    attempts = sorted(rollout.attempt for rollout in killed.rollouts)
    assert attempts == [2, 3], "one was replayed once more"
