"""A program acts out episodes through the gateway: real engine, stores and container ``code``."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.contract.rl_sampler.gateway.program_jobs import (
    PROGRAMS,
    check_tokens,
    greatest_distance,
    program_job,
)
from tests.contract.rl_sampler.pods import MakePod
from tests.contract.rl_sampler.rescoring import CLOSE
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.waiting import until

TALKER = [sys.executable, str(PROGRAMS / "talker.py")]


def test_program_talks_streams_branches_and_posts_its_reward(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path
) -> None:
    sections = program_job(trainer, tiny_model, [*TALKER, "fail"], onFailure="RewardZero")
    sections["agent"]["sampling"] = {"maxTokensPerTurn": 24, "maxContextTokens": 400}
    pod = make_pod(**sections)
    pod.serve_first_of(trainer)
    tasks = trainer.insert(1, group_size=2)
    until(lambda: trainer.all_done(tasks), what="the group")
    failed, good = trainer.chosen(tasks)
    assert (failed.reward, good.reward) == (0.0, 0.25)
    for rollout in (failed, good):
        check_tokens(rollout)
        assert len(rollout.turns) == 3
        assert len(rollout.sequence_starts) == 1, "the second conversation is a branch"
        assert rollout.program is not None
        assert rollout.program.metrics == {"turns": 3.0}
        assert "has finished" in rollout.program.log
        assert greatest_distance(rollout, folder=tiny_model, seeds={1: 1}) <= CLOSE
    assert failed.program is not None
    assert failed.program.exit_code == 3
    assert failed.turns[-1].error is not None
