"""Conversations and ReAct: real engine, stores and servers, the agent as a process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from rl_contracts.documents.arrays import unpack_int32
from rl_contracts.documents.rollout import Rollout, StopReason
from rl_contracts.documents.sampler import SIMULATED_USER
from rl_contracts.documents.task import TaskState
from rl_contracts.ids import TaskId
from tests.contract.rl_sampler.episodes.several_turns import check_turns, short_spoken, with_tools
from tests.contract.rl_sampler.pods import MakePod, Pod
from tests.contract.rl_sampler.scorers.judges import JudgeServer, judging
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.servers import ROOT
from tests.waiting import until

OPTIONS: dict[str, Any] = {"mcpServers": [], "repetitionLimit": 1000}


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    with judging() as started:
        yield started


def started(pod: Pod, trainer: ScriptedTrainer) -> Pod:
    assert pod.stage().returncode == 0
    trainer.publish(weights=short_spoken())
    pod.serve()
    return pod


def shown(rollout: Rollout, model: Path) -> str:
    """All texts that the policy was shown."""
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokens = unpack_int32(rollout.tokens)
    parts = [tokens[turn.request.start : turn.request.end] for turn in rollout.turns]
    return re.sub(r"<\|\w+\|>", "", "".join(tokenizer.decode(part) for part in parts))


def test_scenario_turns_are_shown_in_order(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path
) -> None:
    sections = with_tools(trainer, tiny_model, kind="Conversation", **OPTIONS)
    started(make_pod(**sections), trainer)
    tasks = trainer.insert(3, group_size=4, scenario=["and then", "thanks"])
    until(lambda: trainer.all_done(tasks), what="the groups")
    rollouts = trainer.chosen(tasks)
    for rollout in rollouts:
        check_turns(rollout)
    whole = [rollout for rollout in rollouts if rollout.stop_reason is StopReason.STOP]
    assert whole
    for rollout in whole:
        assert len(rollout.turns) == 3
        assert shown(rollout, tiny_model) == "1+1=and thenthanks"


@pytest.mark.soak
def test_conversation_waits_through_a_simulated_users_outage(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path, server: JudgeServer
) -> None:
    user = {"endpoints": [server.endpoint("silent"), server.endpoint("curious")]}
    sections = with_tools(
        trainer, tiny_model, kind="Conversation", user=user, maxTurns=3, **OPTIONS
    )
    pod = started(make_pod(**sections), trainer)
    before = trainer.insert(2, scenario=["Wants 42."])
    until(lambda: trainer.all_done(before), what="the groups")

    server.kill()
    (held,) = trainer.insert(1, group_size=8)
    document = pod.wait_document(lambda document: bool(document.unavailable), what="the outage")
    assert list(document.unavailable) == [SIMULATED_USER]
    assert "curious at" in document.unavailable[SIMULATED_USER]
    (waiting,) = trainer.insert(1)
    assert trainer.stores.rollouts.of_task(TaskId(held)) == []
    server.start()
    until(lambda: trainer.all_done([held, waiting]), what="the groups after the outage")

    rollouts = trainer.chosen([*before, held, waiting])
    for rollout in rollouts:
        check_turns(rollout)
        assert shown(rollout, tiny_model) == "1+1=" + "Go on." * (len(rollout.turns) - 1)
    assert {rollout.stop_reason for rollout in rollouts} >= {StopReason.TURNS}
    assert {task.attempt for task in trainer.stores.tasks.get([*before, held]).values()} == {1}


def test_simulated_user_may_end_the_conversation(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path, server: JudgeServer
) -> None:
    user = {"endpoints": [server.endpoint("hangup")]}
    sections = with_tools(trainer, tiny_model, kind="Conversation", user=user, **OPTIONS)
    started(make_pod(**sections), trainer)
    tasks = trainer.insert(2)
    until(lambda: trainer.all_done(tasks), what="the groups")
    assert {len(rollout.turns) for rollout in trainer.chosen(tasks)} == {1}


def test_react_agent_describes_tools_and_reports_malformed_steps(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path
) -> None:
    tool = {"entryPoint": "second_look:multiply", "options": {"largest": 99}}
    sections = with_tools(trainer, tiny_model, kind="ReAct", tools=[tool], maxTurns=2, **OPTIONS)
    sections["agent"]["sampling"] = {"maxTokensPerTurn": 64, "maxContextTokens": 2048}
    pod = make_pod(**sections)
    pod.modules.append(ROOT / "examples" / "extending")
    started(pod, trainer)
    tasks = trainer.insert(2, group_size=4)
    until(lambda: trainer.all_done(tasks), what="the groups")
    rollouts = trainer.chosen(tasks)
    assert {rollout.stop_reason for rollout in rollouts} >= {StopReason.TURNS}
    for rollout in rollouts:
        check_turns(rollout)
        assert "multiply: Multiplies two whole numbers. Arguments: {" in shown(rollout, tiny_model)
        if len(rollout.turns) == 2:
            assert "That is neither an action" in shown(rollout, tiny_model)
            assert rollout.turns[0].error is not None
    assert TaskState.DEAD not in trainer.states(tasks).values()
