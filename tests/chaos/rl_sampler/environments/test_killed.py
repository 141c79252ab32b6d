"""Samplers and environments that are killed in every phase of episodes whose turns are saved.

The contract tests kill a sampler while the policy writes. No group may be lost, no reward may come
from an outage, and at most one response of a member may be sampled again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.documents.rollout import Rollout
from tests.contract.rl_sampler.episodes.calling_engine import CallingEngine
from tests.contract.rl_sampler.episodes.killed import (
    DONE_TURNS,
    GROUP,
    KILLED_TURN,
    PlayKilled,
    PlayOn,
    all_in_the_third_turn,
)
from tests.network.openenv import MOST_STEPS, SmallServer, served_in_a_thread

ALL_TURNS = range(1, MOST_STEPS + 1)


def agent(url: str) -> dict[str, Any]:
    """Of a job whose environment can be replayed."""
    return {"kind": "Environment", "environment": {"url": url, "replayable": True}}


def check(rollouts: list[Rollout]) -> None:
    """Each episode was played to its end; none was cut short and given a reward."""
    for rollout in rollouts:
        assert rollout.environment is not None
        assert (rollout.environment.steps, rollout.environment.truncated) == (MOST_STEPS, True)


SAMPLER_DIES: dict[str, tuple[dict[str, Any], int, Callable[[SmallServer], bool]]] = {
    "as it begins": (
        {"reset_faults": ["hang"] * GROUP},
        0,
        lambda server: len(server.resets) == GROUP,
    ),
    "as it acts": (
        {"faults_at": {KILLED_TURN: ["hang"] * GROUP}},
        DONE_TURNS,
        lambda server: len(server.actions) == KILLED_TURN * GROUP,
    ),
    "as it acts for the last time": (
        {"faults_at": {MOST_STEPS: ["hang"] * GROUP}},
        MOST_STEPS - 1,
        lambda server: len(server.actions) == MOST_STEPS * GROUP,
    ),
    "as it says how it ended": (
        {"state_faults": ["hang"] * GROUP},
        MOST_STEPS - 1,
        lambda server: server.states == GROUP,
    ),
}
"""By what the environment does when the sampler dies: its faults, the turns that were saved, and
whether the moment has come."""


@pytest.mark.parametrize("phase", SAMPLER_DIES)
def test_a_sampler_dies_beside_an_environment(phase: str, play_killed: PlayKilled) -> None:
    faults, done, come = SAMPLER_DIES[phase]
    server = SmallServer(**faults)
    with served_in_a_thread(server) as url:
        killed = play_killed(agent(url), held=False, killed_when=lambda _: come(server), done=done)
    killed.check(turns=MOST_STEPS)
    check(killed.rollouts)


def test_the_next_sampler_dies_while_turns_are_replayed(play_killed: PlayKilled) -> None:
    server = SmallServer()
    with served_in_a_thread(server) as url:
        killed = play_killed(
            agent(url),
            then=lambda _: server.faults.extend(["hang"] * GROUP),
            again_when=lambda: len(server.actions) == (DONE_TURNS + 1) * GROUP,
        )
    killed.check(turns=MOST_STEPS)
    check(killed.rollouts)
    assert [rollout.attempt for rollout in killed.rollouts] == [3] * GROUP


ENVIRONMENT_DIES: dict[str, tuple[dict[str, Any], int, int, int]] = {
    "as it begins": ({"reset_faults": ["die"] * GROUP}, 2, 0, 0),
    "as the policy writes": (
        {"faults_at": {DONE_TURNS: ["last"] * GROUP}},
        2,
        DONE_TURNS,
        KILLED_TURN,
    ),
    "as it acts": ({"faults_at": {KILLED_TURN: ["die"] * GROUP}}, 2, DONE_TURNS, KILLED_TURN),
    "as it acts for the last time": (
        {"faults_at": {MOST_STEPS: ["die"] * GROUP}},
        2,
        MOST_STEPS - 1,
        MOST_STEPS,
    ),
    "at the end": ({"faults_at": {MOST_STEPS: ["last"] * GROUP}}, 1, 0, 0),
}
"""By when it dies: its faults, the attempt that is chosen, the turns that this one replayed, and
the turn whose response was sampled again; 0: none."""


@pytest.mark.parametrize("phase", ENVIRONMENT_DIES)
def test_an_environment_dies_beside_a_sampler(
    phase: str, play_on: PlayOn, tiny_model: Path
) -> None:
    """The sampler goes on in other sessions, behind the turns that it saved."""
    faults, attempt, replayed, again = ENVIRONMENT_DIES[phase]
    engine = CallingEngine(tiny_model, 0)
    with served_in_a_thread(SmallServer(**faults)) as url:
        rollouts = play_on(agent(url), engine)
    check(rollouts)
    seen = [(each.attempt, each.replayed_turns, len(each.turns)) for each in rollouts]
    assert seen == [(attempt, replayed, MOST_STEPS)] * GROUP
    asked = [*ALL_TURNS, *([again] if again else [])]
    assert sorted(engine.asked) == sorted(asked * GROUP)


def test_an_environment_that_dies_while_turns_are_replayed(play_killed: PlayKilled) -> None:
    server = SmallServer()
    with served_in_a_thread(server) as url:
        killed = play_killed(
            agent(url),
            killed_when=all_in_the_third_turn,
            then=lambda _: server.faults.append("die"),
        )
    killed.check(turns=MOST_STEPS)
    attempts = sorted(rollout.attempt for rollout in killed.rollouts)
    assert attempts == [2, 3], "one was replayed once more"
