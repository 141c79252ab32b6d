"""Episodes in an environment: real engine and stores, a small server with OpenEnv's protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_contracts.documents.rollout import StopReason
from tests.contract.rl_sampler.episodes.several_turns import (
    check_turns,
    short_spoken,
    with_tools,
)
from tests.contract.rl_sampler.pods import MakePod
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.network.openenv import SmallServer, served_in_a_thread
from tests.waiting import until


def play_in(environment: dict[str, Any], trainer: ScriptedTrainer, model: Path) -> dict[str, Any]:
    """Sections of a job whose policy acts in an environment."""
    return with_tools(trainer, model) | {
        "agent": {
            "kind": "Environment",
            "environment": environment,
            "sampling": {"maxTokensPerTurn": 64, "maxContextTokens": 1600},
        },
        "reward": {"scorers": [{"kind": "Environment"}]},
    }


def test_episodes_of_an_image_are_played_in_its_pods(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path
) -> None:
    server = SmallServer(room=1)
    with served_in_a_thread(server) as url:
        image = {"image": "game:1", "port": int(url.rpartition(":")[2])}
        pod = make_pod(**play_in(image, trainer, tiny_model))
        assert pod.stage().returncode == 0
        trainer.publish(weights=short_spoken())
        pod.serve()
        tasks = trainer.insert(1, group_size=2)
        until(lambda: trainer.all_done(tasks), what="the group")
        pod.end()
    assert [rollout.environment is not None for rollout in trainer.chosen(tasks)] == [True, True]
    assert len(server.resets) == 2
    assert server.refused, "they took turns in the one session"


def test_episodes_end_by_the_environment_and_its_death_is_never_a_reward(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path
) -> None:
    server = SmallServer(faults=["die"])
    with served_in_a_thread(server) as url:
        pod = make_pod(**play_in({"url": url}, trainer, tiny_model))
        assert pod.stage().returncode == 0
        trainer.publish(weights=short_spoken())
        pod.serve()
        tasks = trainer.insert(2, group_size=2)
        until(lambda: trainer.all_done(tasks), what="the groups")
        chosen = trainer.chosen(tasks)
        pod.end()
    stored_tasks = trainer.stores.tasks.get(tasks)
    failed = [
        rollout
        for task in tasks
        for rollout in trainer.stores.rollouts.of_task(task)
        if rollout.error is not None
    ]
    assert sorted(task.attempt for task in stored_tasks.values()) == [1, 2]
    assert [rollout.error.kind for rollout in failed if rollout.error] == ["infrastructure"]
    assert failed[0].parts == []
    for rollout in chosen:
        check_turns(rollout)
        assert rollout.environment is not None
        assert [part.scorer for part in rollout.parts] == ["Environment"]
        assert rollout.reward == sum(turn.reward or 0.0 for turn in rollout.turns)
        assert rollout.environment.truncated == (rollout.stop_reason is StopReason.TRUNCATED)
        assert rollout.environment.steps == sum(len(turn.calls) for turn in rollout.turns)
    assert any(rollout.stop_reason is StopReason.TRUNCATED for rollout in chosen)
    assert len({str(reset["seed"]) for reset in server.resets}) == 2, "one state for each group"
