"""Episodes as traces of verifiers, version 1 of the schema that its release 0.4 reads. Pure."""

from __future__ import annotations

from typing import Any

from rl_contracts.documents.rollout import StopReason, TokenRange, Turn
from rl_contracts.trajectories.atif import facts
from rl_contracts.trajectories.episode import Episode, call_id, finish_reason

SCHEMA = 1


def trace(episode: Episode, *, producer: str) -> dict[str, Any]:
    """A record that ``verifiers.v1.trace.WireTrace`` parses.

    Nodes are messages with the tokens that each adds. Tokens of the prompt are those of its last
    message: which of its messages each belongs to is not stored. A context that the agent
    discarded, or continued otherwise, begins a new branch.
    """
    rollout, task = episode.rollout, episode.task
    nodes, calls = _graph(episode)
    parts = rollout.parts
    rewards = {part.scorer: {"score": part.value, "weight": part.weight} for part in parts}
    if not rewards and rollout.error is None:
        rewards = {"reward": {"score": rollout.reward, "weight": 1.0}}
    failed = rollout.error
    return {
        "version": SCHEMA,
        "id": rollout.id,
        "verifiers": {"version": f"rl-operator {producer}"},
        "task": {
            "type": "Task",
            "key": rollout.task,
            "data": {
                "id": task.example if task else rollout.task,
                "prompt": _prompt(episode),
                "answer": task.answer if task else "",
            },
        },
        "agent": {"config": {}, "name": "agent", "trainable": not rollout.greedy},
        "nodes": nodes,
        "calls": calls,
        "rewards": rewards,
        "info": facts(episode),
        "is_completed": True,
        "ok": failed is None,
        "stop_condition": rollout.stop_reason.value,
        "is_timeout": False,
        "errors": [] if failed is None else [{"type": failed.kind, "message": failed.message}],
        "timing": {"start": rollout.timings.claimed_at},
    }


def _prompt(episode: Episode) -> list[dict[str, Any]]:
    messages = episode.task.messages if episode.task else []
    return [
        {"role": message.role, "content": message.text}
        for message in messages
        if message.role in ("system", "user", "assistant")
    ]


def _graph(episode: Episode) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Nodes and model calls, turn by turn."""
    nodes: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for number, turn in enumerate(episode.turns):
        context = episode.context(turn.response)
        if number == 0 or episode.begins_sequence(turn):
            parent, added, inputs = None, context, _prompt(episode) or [_unknown()]
        else:
            parent, added = len(nodes) - 1, turn.request
            inputs = _results(episode.turns[number - 1], number - 1) or [_unknown()]
        for index, message in enumerate(inputs):
            last = index == len(inputs) - 1
            nodes.append(_input(episode, message, parent, added if last else None))
            parent = len(nodes) - 1
        nodes.append(_response(episode, turn, number, parent))
        calls.append(_call(turn, context, node=len(nodes) - 1))
    return nodes, calls


def _unknown() -> dict[str, Any]:
    """A message of which only the tokens are stored: what a user said between two turns."""
    return {"role": "user", "content": ""}


def _results(before: Turn, number: int) -> list[dict[str, Any]]:
    return [
        {
            "role": "tool",
            "tool_call_id": call_id(number, index),
            "name": call.tool,
            "content": call.result,
        }
        for index, call in enumerate(before.calls)
    ]


def _input(
    episode: Episode, message: dict[str, Any], parent: int | None, added: TokenRange | None
) -> dict[str, Any]:
    tokens = [] if added is None else episode.tokens(added)
    return {
        "parent": parent,
        "message": message,
        "sampled": False,
        "timestamp": episode.rollout.timings.claimed_at,
        "token_ids": tokens,
        "mask": [False] * len(tokens),
    }


def _response(episode: Episode, turn: Turn, number: int, parent: int | None) -> dict[str, Any]:
    tokens = episode.tokens(turn.response)
    message: dict[str, Any] = {"role": "assistant", "content": turn.text}
    if turn.calls:
        message["tool_calls"] = [
            {"id": call_id(number, index), "name": call.tool, "arguments": call.arguments}
            for index, call in enumerate(turn.calls)
        ]
    return {
        "parent": parent,
        "message": message,
        "sampled": True,
        "timestamp": episode.rollout.timings.claimed_at,
        "token_ids": tokens,
        "mask": [True] * len(tokens),
        "logprobs": episode.logprobs(turn.response),
        "advantages": episode.advantages(turn.response),
    }


def _call(turn: Turn, context: TokenRange, *, node: int) -> dict[str, Any]:
    return {
        "node": node,
        "finish_reason": finish_reason(turn),
        "usage": {
            "prompt_tokens": context.end - context.start,
            "completion_tokens": turn.response.end - turn.response.start,
        },
        "error": None
        if turn.error is None or turn.stop_reason != StopReason.ERROR
        else {"type": turn.error.kind, "message": turn.error.message},
    }
