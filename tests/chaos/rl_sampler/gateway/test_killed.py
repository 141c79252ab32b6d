"""Samplers and programs that are killed in every phase of episodes whose turns are saved.

The contract tests kill a sampler while the policy writes. No group may be lost, no reward may come
from an outage, and at most one response of a member may be sampled again.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.documents.rollout import Rollout
from tests.chaos.rl_sampler.gateway.environments import PROGRAMS
from tests.contract.rl_sampler.episodes.calling_engine import CallingEngine
from tests.contract.rl_sampler.episodes.killed import GROUP, KILLED_TURN, PlayKilled, PlayOn
from tests.contract.rl_sampler.gateway.program_jobs import check_tokens
from tests.waiting import until

TURNS = 4


def agent(folder: Path, *events: str) -> dict[str, Any]:
    """Of a job whose program asks ``TURNS`` times, can be replayed, and meets events."""
    folder.mkdir()
    program = {
        "command": [sys.executable, str(PROGRAMS / "stopper.py"), str(folder), str(TURNS), *events],
        "onFailure": "InfrastructureError",
        "replayable": True,
    }
    return {"kind": "Program", "program": program}


def marks(folder: Path, pattern: str) -> list[Path]:
    """What the programs of a group say, once all of them say it."""
    files = sorted(folder.glob(pattern))
    return files if len(files) == GROUP else []


def check(rollouts: list[Rollout]) -> None:
    """Each episode was played to its end, and its reward is the program's."""
    for rollout in rollouts:
        check_tokens(rollout)
        assert rollout.program is not None
        assert (rollout.reward, rollout.program.metrics) == (0.5, {"turns": TURNS})
        assert len(rollout.turns) == TURNS


SAMPLER_DIES = {"as it begins": 0, "between two requests": 2, "before it posts its reward": TURNS}
"""By what the program does when the sampler dies: the answers that it has."""


@pytest.mark.parametrize("phase", SAMPLER_DIES)
def test_a_sampler_dies_beside_a_program(
    phase: str, play_killed: PlayKilled, tmp_path: Path
) -> None:
    done, folder = SAMPLER_DIES[phase], tmp_path / "marks"
    killed = play_killed(
        agent(folder, f"1:{done}:waits"),
        held=False,
        killed_when=lambda _: bool(marks(folder, f"1-?-{done}")),
        done=done,
    )
    killed.check(turns=TURNS)
    check(killed.rollouts)


def test_the_next_sampler_dies_while_answers_are_replayed(
    play_killed: PlayKilled, tmp_path: Path
) -> None:
    folder = tmp_path / "marks"
    killed = play_killed(
        agent(folder, "1:2:waits", "2:1:waits"),
        held=False,
        killed_when=lambda _: bool(marks(folder, "1-?-2")),
        again_when=lambda: bool(marks(folder, "2-?-1")),
    )
    killed.check(turns=TURNS)
    check(killed.rollouts)
    assert [rollout.attempt for rollout in killed.rollouts] == [3] * GROUP


PROGRAM_DIES = {"as it begins": 0, "between two requests": 2, "before it posts its reward": TURNS}
"""By when it dies: the answers that it has. None of them is sampled again."""


@pytest.mark.parametrize("phase", PROGRAM_DIES)
def test_a_program_dies_beside_a_sampler(
    phase: str, play_on: PlayOn, tiny_model: Path, tmp_path: Path
) -> None:
    done, engine = PROGRAM_DIES[phase], CallingEngine(tiny_model, 0)
    rollouts = play_on(agent(tmp_path / "marks", f"1:{done}:dies"), engine)
    check(rollouts)
    assert [(each.attempt, each.replayed_turns) for each in rollouts] == [(2, done)] * GROUP
    assert sorted(engine.asked) == sorted([*range(1, TURNS + 1)] * GROUP)


def test_a_program_dies_while_the_policy_writes(
    play_on: PlayOn, tiny_model: Path, tmp_path: Path
) -> None:
    folder, engine = tmp_path / "marks", CallingEngine(tiny_model, 0, held_turn=KILLED_TURN)

    def kill() -> None:
        until(lambda: engine.asked.count(KILLED_TURN) == GROUP, what="the third requests")
        engine.held_turn = 0
        for mark in marks(folder, "1-?"):
            os.kill(int(mark.read_text()), signal.SIGKILL)

    rollouts = play_on(agent(folder), engine, meanwhile=kill)
    check(rollouts)
    seen = [(each.attempt, each.replayed_turns) for each in rollouts]
    assert seen == [(2, KILLED_TURN - 1)] * GROUP
    assert sorted(engine.asked) == sorted([*range(1, TURNS + 1), KILLED_TURN] * GROUP)


def test_a_program_dies_while_answers_are_replayed(
    play_on: PlayOn, tiny_model: Path, tmp_path: Path
) -> None:
    engine = CallingEngine(tiny_model, 0)
    rollouts = play_on(agent(tmp_path / "marks", "1:2:dies", "2:1:dies"), engine)
    check(rollouts)
    assert [each.attempt for each in rollouts] == [3] * GROUP
