"""Episodes in the Agent Trajectory Interchange Format (ATIF) 1.8, as Harbor defines it. Pure."""

from __future__ import annotations

import json
from typing import Any

from rl_contracts.documents.rollout import ToolCall, Turn
from rl_contracts.documents.task import Message
from rl_contracts.trajectories.episode import Episode, call_id

VERSION = "ATIF-v1.8"


def trajectory(episode: Episode, *, tokens: bool = True, producer: str) -> dict[str, Any]:
    """One trajectory.

    Steps are the messages of the prompt and the turns of the policy. What a simulated user said
    between two turns is there as tokens alone, because a rollout keeps no other text than the
    policy's and the tools'.

    Args:
        episode: with at least one turn or prompt message.
        tokens: include token ids and log-probabilities. Each turn repeats its whole context, as
            the format demands.
        producer: version of this program.
    """
    rollout = episode.rollout
    prompt = episode.task.messages if episode.task else []
    steps = [_message(message) for message in prompt]
    steps += [
        _turn(episode, turn, number, tokens=tokens) for number, turn in enumerate(episode.turns)
    ]
    return {
        "schema_version": VERSION,
        "session_id": rollout.id,
        "trajectory_id": rollout.id,
        "agent": {"name": "rl-operator", "version": producer, "model_name": rollout.run},
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, start=1)],
        "final_metrics": {
            "total_prompt_tokens": rollout.num_tokens - rollout.num_generated,
            "total_completion_tokens": rollout.num_generated,
            "total_steps": len(steps),
        },
        "extra": facts(episode),
    }


def facts(episode: Episode) -> dict[str, Any]:
    """What this program knows of an episode beyond its messages."""
    rollout, task, member = episode.rollout, episode.task, episode.member
    known: dict[str, Any] = {
        "run": rollout.run,
        "task": rollout.task,
        "member": rollout.member,
        "temperature": rollout.temperature,
        "stop_reason": rollout.stop_reason.value,
        "reward": rollout.reward,
        "reward_parts": [part.model_dump() for part in rollout.parts],
        "answer": rollout.answer,
        "error": rollout.error.model_dump() if rollout.error else None,
    }
    if task is not None:
        known |= {"split": task.split, "dataset": task.dataset, "example": task.example}
        known |= {"reference": task.answer}
    if member is not None:
        known |= {"trained_step": episode.step, "advantage": member.advantage}
    return known


def _message(message: Message) -> dict[str, Any]:
    """A message of the prompt. The format knows no tool messages outside of a step's results."""
    source = {"system": "system", "assistant": "agent"}.get(message.role, "user")
    step: dict[str, Any] = {"source": source, "message": message.text}
    if source == "agent":  # of the prompt: the policy did not generate it
        step |= {"is_copied_context": True, "llm_call_count": 0}
    if source == "user" and message.role != "user":
        step["extra"] = {"role": message.role}
    return step


def _turn(episode: Episode, turn: Turn, number: int, *, tokens: bool) -> dict[str, Any]:
    spans = episode.spans(turn.response)
    extra: dict[str, Any] = {
        "stop_reason": turn.stop_reason.value,
        "policy_versions": [
            {"version": span.version, "step": span.step, "tokens": span.end - span.start}
            for span in spans
        ],
        "seconds": {
            "queue": turn.queue_seconds,
            "generate": turn.generate_seconds,
            "tools": turn.tool_seconds,
        },
    }
    if turn.reward is not None:
        extra["reward"] = turn.reward
    if turn.error is not None:
        extra["error"] = turn.error.model_dump()
    step = {
        "source": "agent",
        "message": turn.text,
        "llm_call_count": 1,
        "metrics": _metrics(episode, turn, tokens=tokens),
        "extra": extra,
    }
    if turn.calls:
        calls = list(enumerate(turn.calls))
        step["tool_calls"] = [_call(call, call_id(number, index)) for index, call in calls]
        results = [_result(call, call_id(number, index)) for index, call in calls]
        step["observation"] = {"results": results}
    return step


def _metrics(episode: Episode, turn: Turn, *, tokens: bool) -> dict[str, Any]:
    context, response = episode.context(turn.response), turn.response
    metrics: dict[str, Any] = {
        "prompt_tokens": context.end - context.start,
        "completion_tokens": response.end - response.start,
    }
    if tokens:
        metrics |= {
            "prompt_token_ids": episode.tokens(context),
            "completion_token_ids": episode.tokens(response),
            "logprobs": episode.logprobs(response),
        }
        advantages = episode.advantages(response)
        if advantages is not None:
            metrics["extra"] = {"advantages": advantages}
    return metrics


def _call(call: ToolCall, name: str) -> dict[str, Any]:
    arguments = parsed_arguments(call)
    described: dict[str, Any] = {
        "tool_call_id": name,
        "function_name": call.tool,
        "arguments": arguments or {},
    }
    if arguments is None:
        described["extra"] = {"malformed_arguments": call.arguments}
    return described


def _result(call: ToolCall, name: str) -> dict[str, Any]:
    extra = {"outcome": call.outcome, "seconds": call.seconds}
    return {"source_call_id": name, "content": call.result, "extra": extra}


def parsed_arguments(call: ToolCall) -> dict[str, Any] | None:
    """The arguments as the policy wrote them; None if they are no JSON object."""
    try:
        value = json.loads(call.arguments)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
