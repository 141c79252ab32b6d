"""Responses to a program that outlive their sampler; the soak kills in more phases."""

from __future__ import annotations

import sys
from pathlib import Path

from rl_contracts.stores.clients.settings import StoreSettings
from tests.contract.rl_sampler.episodes.killed import GROUP, KILLED_TURN, play_with_a_kill
from tests.contract.rl_sampler.fork_server import ForkServer
from tests.contract.rl_sampler.gateway.program_jobs import PROGRAMS, check_tokens
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer

TURNS = 4


def test_the_next_holder_answers_a_program_with_what_was_saved(
    tmp_path: Path,
    trainer: ScriptedTrainer,
    tiny_model: Path,
    store_settings: StoreSettings,
    fork_server: ForkServer,
) -> None:
    program = {
        "command": [sys.executable, str(PROGRAMS / "counter.py"), str(TURNS)],
        "onFailure": "InfrastructureError",
        "replayable": True,
    }
    killed = play_with_a_kill(
        {"kind": "Program", "program": program},
        held=True,
        killed_when=lambda engine: engine.asked.count(KILLED_TURN) == GROUP,
        folder=tmp_path,
        trainer=trainer,
        model=tiny_model,
        settings=store_settings,
        fork_server=fork_server,
    )
    killed.check(turns=TURNS)
    for rollout in killed.rollouts:
        check_tokens(rollout)
        assert rollout.program is not None
        assert (rollout.reward, rollout.program.metrics) == (0.5, {"turns": TURNS})
