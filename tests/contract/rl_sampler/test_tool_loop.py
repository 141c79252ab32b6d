"""Episodes of several turns: real engine, stores and MCP server, the agent as a process."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from rl_contracts.documents.arrays import unpack_float32, unpack_int32
from rl_contracts.documents.rollout import Rollout, StopReason
from rl_contracts.documents.task import TaskState
from tests.contract.rl_sampler.conftest import MakePod, until
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.contract.rl_sampler.tiny_model import ADDED, END, Tensors, tensors

SERVER = Path(__file__).with_name("mcp_server.py")
END_ID = 256 + ADDED.index(END)
TEMPLATE = (
    "{%- for message in messages -%}{{- '<|user|>' ~ message.content ~ '<|end|>' -}}"
    "{%- endfor -%}{{- '<|assistant|>' -}}"
)


def short_spoken() -> Tensors:
    """Weights that end a turn about half of the time, whatever was said."""
    weights = {name: np.zeros_like(one) for name, one in tensors(0).items()}
    for name, one in weights.items():
        if "norm" in name:
            one[:] = 1
    weights["model.embed_tokens.weight"][:] = 0.05
    weights["model.embed_tokens.weight"][END_ID] = 0.05 * 2.7
    return weights


def with_tools(trainer: ScriptedTrainer, model: Path, **options: Any) -> dict[str, Any]:
    """Sections of a job whose model has a chat template for tools, and an agent that uses them."""
    objects = trainer.stores.objects
    key = f"{objects.prefix}models/tools"
    for path in model.iterdir():
        objects.put_file(f"{key}/{path.name}", path)
    settings = json.loads((model / "tokenizer_config.json").read_bytes())
    settings["chat_template"] = TEMPLATE
    objects.put(f"{key}/tokenizer_config.json", json.dumps(settings).encode())
    server = {"name": "calculator", "command": [sys.executable, str(SERVER)]}
    sampling = {"maxTokensPerTurn": 64, "maxContextTokens": 800}
    agent = {"kind": "ToolLoop", "mcpServers": [server], "sampling": sampling, **options}
    return {"model": {"uri": objects.uri(key)}, "agent": agent}


def check_turns(rollout: Rollout) -> None:
    """One sequence; each turn shows what is new and keeps what was said, token by token."""
    tokens, logprobs = unpack_int32(rollout.tokens), unpack_float32(rollout.logprobs)
    assert rollout.sequence_starts == []
    end = 0
    for turn in rollout.turns:
        assert (turn.request.start, turn.request.end) == (end, turn.response.start)
        assert rollout.mask[turn.request.start : turn.request.end].count(1) == 0
        assert rollout.mask[turn.response.start : turn.response.end].count(0) == 0
        end = turn.response.end
        assert (tokens[end - 1] == END_ID) == (turn.stop_reason is StopReason.STOP)
        assert turn.generate_seconds > 0
    assert end == len(tokens)
    assert all(value == 0 for value, bit in zip(logprobs, rollout.mask, strict=True) if not bit)
    covered = [at for span in rollout.spans for at in range(span.start, span.end)]
    assert covered == [at for at, bit in enumerate(rollout.mask) if bit]


def test_an_episode_goes_on_for_as_many_turns_as_it_must(
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
            one.generate_seconds for one in rollout.turns
        )
    answered = [one for one in rollouts if one.stop_reason is StopReason.STOP]
    assert answered
    assert {len(one.turns) for one in answered} == {3}


def test_tools_that_are_down_are_no_reward_and_the_task_goes_back(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path
) -> None:
    sections = with_tools(trainer, tiny_model)
    sections["agent"]["mcpServers"] = [{"name": "gone", "url": "http://127.0.0.1:9/mcp"}]
    pod = make_pod(**sections)
    assert pod.stage().returncode == 0
    trainer.publish(weights=short_spoken())
    (task,) = trainer.insert(1)
    pod.serve()

    def complains() -> bool:
        document = pod.document()
        return document is not None and "MCP server gone" in document.last_error

    until(complains, what="the complaint")
    found = trainer.stores.tasks.get([task])[task]
    assert found.state in {TaskState.RETRY, TaskState.CLAIMED, TaskState.DEAD}
    assert found.rollouts == []


def test_a_template_that_cannot_go_on_ends_the_task_with_the_reason(
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
