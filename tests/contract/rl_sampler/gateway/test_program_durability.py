"""Responses to a program that outlive their sampler; the soak kills in more phases."""

from __future__ import annotations

import sys

from tests.contract.rl_sampler.episodes.killed import PlayKilled
from tests.contract.rl_sampler.gateway.program_jobs import PROGRAMS, check_tokens

TURNS = 4


def test_the_next_holder_answers_a_program_with_what_was_saved(
    play_killed: PlayKilled,
) -> None:
    program = {
        "command": [sys.executable, str(PROGRAMS / "counter.py"), str(TURNS)],
        "onFailure": "InfrastructureError",
        "replayable": True,
    }
    killed = play_killed({"kind": "Program", "program": program})
    killed.check(turns=TURNS)
    for rollout in killed.rollouts:
        check_tokens(rollout)
        assert rollout.program is not None
        assert (rollout.reward, rollout.program.metrics) == (0.5, {"turns": TURNS})
