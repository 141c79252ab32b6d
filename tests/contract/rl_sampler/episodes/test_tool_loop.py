"""Episodes of several turns: real engine, stores and MCP server, the agent as a process."""

from __future__ import annotations

import signal
from pathlib import Path

from rl_contracts import env
from rl_contracts.documents.rollout import StopReason
from rl_contracts.documents.task import TaskState
from tests.contract.rl_sampler.episodes.several_turns import check_turns, short_spoken, with_tools
from tests.contract.rl_sampler.pods import MakePod
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.waiting import until


def test_episode_goes_on_until_min_turns(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path
) -> None:
    pod = make_pod(**with_tools(trainer, tiny_model, minTurns=3, repetitionLimit=1000))
    assert pod.stage().returncode == 0
    trainer.publish(weights=short_spoken())
    pod.serve()
    tasks = trainer.insert(4, group_size=4)
    until(lambda: trainer.all_done(tasks), what="the groups")
    rollouts = trainer.chosen(tasks)
    for rollout in rollouts:
        check_turns(rollout)
        assert rollout.error is None
        assert rollout.timings.generate_seconds == sum(
            turn.generate_seconds for turn in rollout.turns
        )
    answered = [rollout for rollout in rollouts if rollout.stop_reason is StopReason.STOP]
    assert answered
    assert {len(rollout.turns) for rollout in answered} == {3}


def test_down_tools_cost_no_attempt_and_are_never_a_reward(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path
) -> None:
    sections = with_tools(trainer, tiny_model)
    sections["agent"]["mcpServers"] = [{"name": "gone", "url": "http://127.0.0.1:9/mcp"}]
    pod = make_pod(**sections)
    pod.environment[env.DRAIN_SECONDS] = "0"
    assert pod.stage().returncode == 0
    trainer.publish(weights=short_spoken())
    (task,) = trainer.insert(1)
    pod.serve()

    def complains() -> bool:
        document = pod.document()
        return document is not None and "MCP server gone" in document.last_error

    until(complains, what="the complaint")
    document = pod.document()
    assert document is not None
    assert list(document.unavailable) == ["MCP server gone"]
    assert 'rl_sampler_problem{topic="MCP server gone"} 1.0' in pod.get("/metrics")[1]
    stored = trainer.stores.tasks.get([task])[task]
    assert (stored.state, stored.attempt, stored.rollouts) == (TaskState.CLAIMED, 1, [])
    assert pod.signal(signal.SIGTERM) == 0
    assert trainer.states([task])[task] is TaskState.RETRY


def test_template_without_several_turns_kills_the_task_with_a_reason(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path
) -> None:
    sections = with_tools(trainer, tiny_model)
    del sections["model"]  # the ordinary one knows users alone
    pod = make_pod(**sections)
    assert pod.stage().returncode == 0
    trainer.publish()
    (task,) = trainer.insert(1)
    pod.serve()
    until(lambda: trainer.states([task])[task] is TaskState.DEAD, what="its end")
    assert "only users here" in trainer.stores.tasks.get([task])[task].reason
