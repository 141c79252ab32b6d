"""Turns in an environment that outlive their sampler; the soak kills in more phases."""

from __future__ import annotations

from pathlib import Path

from rl_contracts.stores.clients.settings import StoreSettings
from tests.contract.rl_sampler.episodes.killed import GROUP, KILLED_TURN, play_with_a_kill
from tests.contract.rl_sampler.fork_server import ForkServer
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.openenv import MOST_STEPS, SmallServer, served_in_a_thread


def test_the_next_holder_makes_the_saved_actions_again_and_goes_on(
    tmp_path: Path,
    trainer: ScriptedTrainer,
    tiny_model: Path,
    store_settings: StoreSettings,
    fork_server: ForkServer,
) -> None:
    server = SmallServer()
    with served_in_a_thread(server) as url:
        killed = play_with_a_kill(
            {"kind": "Environment", "environment": {"url": url, "replayable": True}},
            held=True,
            killed_when=lambda engine: engine.asked.count(KILLED_TURN) == GROUP,
            folder=tmp_path,
            trainer=trainer,
            model=tiny_model,
            settings=store_settings,
            fork_server=fork_server,
        )
    killed.check(turns=MOST_STEPS)
    for rollout in killed.rollouts:
        assert rollout.environment is not None
        assert (rollout.environment.steps, rollout.environment.truncated) == (MOST_STEPS, True)
    ids = [reset["episode_id"] for reset in server.resets]
    assert (len(ids), len(set(ids))) == (2 * GROUP, GROUP), "the same in both attempts"
