"""A program acts out episodes through the gateway: real engine, stores and runner of programs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.contract.rl_sampler.gateway.program_jobs import (
    PROGRAMS,
    check_tokens,
    greatest_distance,
    program_job,
)
from tests.contract.rl_sampler.pods import MakePod
from tests.contract.rl_sampler.rescoring import CLOSE
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.examples import first
from tests.waiting import until

TALKER = [sys.executable, str(PROGRAMS / "talker.py")]


@pytest.mark.parametrize("place", first(1, ["Pod", "EpisodePod", "Sidecar"]))
def test_program_talks_streams_branches_and_posts_its_reward(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path, place: str
) -> None:
    sections = program_job(
        trainer, tiny_model, [*TALKER, "fail"], onFailure="RewardZero", runsIn=place
    )
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


@pytest.mark.parametrize("what", first(1, ["prompt", "log"]))
def test_what_is_too_long_costs_its_member_and_not_the_group(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path, what: str
) -> None:
    command = [sys.executable, str(PROGRAMS / "asker.py"), what]
    pod = make_pod(**program_job(trainer, tiny_model, command, onFailure="InfrastructureError"))
    pod.serve_first_of(trainer)
    tasks = trainer.insert(1, group_size=3)
    until(lambda: trainer.all_done(tasks), what="the group")
    assert [rollout.attempt for rollout in trainer.chosen(tasks)] == [1, 2, 1]


@pytest.mark.soak
def test_pod_of_programs_that_is_killed_costs_an_attempt_and_no_reward(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    command = [sys.executable, str(PROGRAMS / "holder.py"), str(marks)]
    pod = make_pod(**program_job(trainer, tiny_model, command, onFailure="RewardZero"))
    pod.serve_first_of(trainer)
    tasks = trainer.insert(1, group_size=2)
    until(lambda: len(list(marks.glob("1-?"))) == 2, what="both programs of the first attempt")
    pod.kill_programs()
    pod.serve_programs()
    (marks / "go").touch()
    until(lambda: trainer.all_done(tasks), what="the group")
    chosen = trainer.chosen(tasks)
    assert [(rollout.attempt, rollout.reward) for rollout in chosen] == [(2, 0.5)] * 2
    lost = [each for each in trainer.stores.rollouts.of_task(tasks[0]) if each.attempt == 1]
    assert len(lost) == 2
    for rollout in lost:
        assert rollout.error is not None
        assert (rollout.error.kind, rollout.reward) == ("infrastructure", 0.0)


@pytest.mark.soak
def test_pod_of_an_episode_that_is_killed_costs_an_attempt_and_no_reward(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path, tmp_path: Path
) -> None:
    """The other member's pod goes on; its episode ends with its attempt all the same."""
    marks = tmp_path / "marks"
    marks.mkdir()
    command = [sys.executable, str(PROGRAMS / "holder.py"), str(marks)]
    options = {"onFailure": "RewardZero", "runsIn": "EpisodePod", "pods": 2}
    pod = make_pod(**program_job(trainer, tiny_model, command, **options))
    pod.serve_first_of(trainer)
    tasks = trainer.insert(1, group_size=2)
    until(lambda: len(list(marks.glob("1-?"))) == 2, what="both programs of the first attempt")
    episodes = pod.episode_pods
    assert episodes is not None
    episodes.pods[0].kill()
    (marks / "go").touch()
    until(lambda: trainer.all_done(tasks), what="the group")
    chosen = trainer.chosen(tasks)
    assert {rollout.reward for rollout in chosen} == {0.5}, "no reward from an outage"
    lost = [each for each in trainer.stores.rollouts.of_task(tasks[0]) if each.error is not None]
    assert lost
    assert {rollout.error.kind for rollout in lost if rollout.error} == {"infrastructure"}
    until(lambda: episodes.replaced >= 2, what="new pods in the place of used ones")
