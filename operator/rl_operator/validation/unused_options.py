"""Options that are set and that nothing of the job reads, whatever its objective.

An option is taken for set where it differs from its default: the API server fills defaults in.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rl_contracts.errors import Refusal
from rl_contracts.spec.agent.agents import Agent
from rl_contracts.spec.algorithm.algorithm import UNSAMPLED, Algorithm
from rl_contracts.spec.base import Model
from rl_contracts.spec.data import HARBOR, Columns, Hub
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.training.tracking import Tracking
from rl_contracts.spec.training.training import Evaluation
from rl_contracts.spec.workers import Autoscaling, SamplerTemplate
from rl_operator.render import hub_access

SAMPLED = ("RL", "Distillation")
"""Objectives that sample validation data."""


def of_spec(spec: RLJobSpec) -> Iterator[Refusal]:
    """Refusals of options that nothing reads."""
    if spec.algorithm.objective in (*SAMPLED, *UNSAMPLED):
        yield from _of_tracking(spec.training.tracking)
    if spec.algorithm.objective in SAMPLED:
        yield from _of_evaluation(spec)
        yield from _of_agent(spec.agent)
        yield from _of_actions(spec.agent)
        yield from _of_prompts(spec.agent)
        yield from _of_stops(spec.agent)
        yield from _of_shaping(spec)
    yield from _of_hub(spec)
    yield from _of_columns(spec)
    yield from _of_fields(spec)


def of_template(at: str, template: SamplerTemplate) -> Iterator[Refusal]:
    """Refusals of options of a sampler template that nothing reads; ``at`` is its path."""
    if template.autoscaling.mode == "None":
        names = ("scale_up_cooldown_seconds", "scale_down_cooldown_seconds")
        message = "It is for autoscaling.mode Builtin, and mode is None."
        yield from differing(
            f"{at}.autoscaling", template.autoscaling, Autoscaling(), names, message
        )


def _of_tracking(tracking: Tracking) -> Iterator[Refusal]:
    if tracking.wandb is None and tracking.mlflow is None:
        message = "Only wandb and mlflow read it, and neither is set."
        names = ("project", "run_name", "secret_name")
        yield from differing("spec.training.tracking", tracking, Tracking(), names, message)
    if tracking.wandb is None:
        message = "Only wandb reads it, and it is not set."
        yield from differing(
            "spec.training.tracking", tracking, Tracking(), ("entity", "tags"), message
        )


def _of_evaluation(spec: RLJobSpec) -> Iterator[Refusal]:
    if not spec.data.validation and not spec.data.test:
        yield from differing(
            "spec.training.evaluation",
            spec.training.evaluation,
            Evaluation(),
            ("temperatures", "samples_per_prompt", "timeout_seconds"),
            "It is for evaluations, and neither data.validation nor data.test has a source.",
        )


def _of_agent(agent: Agent) -> Iterator[Refusal]:
    """A conversation without tools has no tool calls and no results."""
    if agent.kind != "Conversation" or agent.tools or agent.mcp_servers:
        return
    message = "It is for tools, and neither agent.tools nor agent.mcpServers has any."
    names = ("tool_call_format", "browse", "max_tool_result_characters")
    yield from differing("spec.agent", agent, Agent(), names, message)
    if agent.context is not None and agent.context.overflow == "DiscardTools":
        yield _refusal("spec.agent.context.overflow", agent.context.overflow, message)


def _of_actions(agent: Agent) -> Iterator[Refusal]:
    """Options of an environment's actions that are of another form."""
    section = agent.environment
    if section is None:
        return
    message = f"agent.environment.action is {section.action}."
    if section.action != "Text" and section.text_field is not None:
        at = "spec.agent.environment.textField"
        yield _refusal(at, section.text_field, f"It is for action Text; {message}")
    if section.action == "Tool":
        return
    message = f"It is for action Tool; {message}"
    yield from differing("spec.agent", agent, Agent(), ("tool_call_format",), message)
    if agent.context is not None and agent.context.overflow == "DiscardTools":
        yield _refusal("spec.agent.context.overflow", agent.context.overflow, message)


def _of_stops(agent: Agent) -> Iterator[Refusal]:
    if agent.program is not None and agent.sampling.stop:
        message = "A program names its stop texts itself, in each request."
        yield _refusal("spec.agent.sampling.stop", agent.sampling.stop, message)


def _of_prompts(agent: Agent) -> Iterator[Refusal]:
    most, context = agent.sampling.max_prompt_tokens, agent.sampling.max_context_tokens
    field = "spec.agent.sampling.maxPromptTokens"
    if most is not None and agent.program is not None:
        yield _refusal(field, most, "A program makes its prompts itself.")
    elif most is not None and most >= context:
        message = f"maxContextTokens is {context}, which also limits the prompt: set less."
        yield _refusal(field, most, message)


def _of_shaping(spec: RLJobSpec) -> Iterator[Refusal]:
    if spec.agent.kind == "SingleTurn" and spec.algorithm.objective == "RL":
        yield from differing(
            "spec.algorithm.shaping",
            spec.algorithm.shaping,
            Algorithm().shaping,
            ("cap_faulty_turns", "efficient_rewarding"),
            "It compares turns, and agent.kind SingleTurn has one.",
        )


def _of_columns(spec: RLJobSpec) -> Iterator[Refusal]:
    """Columns of Harbor tasks, which have none."""
    message = "A Harbor task has an instruction and tests, and no columns."
    names = tuple(Columns.model_fields)
    for at, source in spec.data.by_field.items():
        if source.format == HARBOR:
            yield from differing(f"{at}.columns", source.columns, Columns(), names, message)


def _of_fields(spec: RLJobSpec) -> Iterator[Refusal]:
    """Fields of records are for scorers, programs, agents of users and resets of environments."""
    scorers = any(scorer.entry_point for scorer in spec.reward.scorers)
    agent = spec.agent
    if spec.algorithm.supervised or scorers or agent.entry_point or agent.begins_itself:
        return
    message = "They are for programs, environments and what has an entryPoint, and there is none."
    for at, source in spec.data.by_field.items():
        yield from differing(f"{at}.columns", source.columns, Columns(), ("fields",), message)


def _of_hub(spec: RLJobSpec) -> Iterator[Refusal]:
    if hub_access.of_trainer(spec):
        return
    message = "No model or data source is an hf:// URI, and training.checkpoint.hubRepo is unset."
    yield from differing("spec.data.hub", spec.data.hub, Hub(), tuple(Hub.model_fields), message)


def differing(
    at: str, section: Model, usual: Model, names: tuple[str, ...], message: str
) -> Iterator[Refusal]:
    """A refusal of each of these fields that differs from its default."""
    for name in names:
        value = getattr(section, name)
        if value != getattr(usual, name):
            alias = type(section).model_fields[name].alias or name
            yield _refusal(f"{at}.{alias}", value, message)


def _refusal(field: str, value: Any, message: str) -> Refusal:
    shown = "set" if isinstance(value, Model) else value
    return Refusal(
        field=field,
        value=shown if isinstance(shown, str) else json.dumps(shown),
        reason="OptionUnused",
        message=f"Nothing reads this. {message}",
        remedy="Remove it.",
    )
