"""Imports and checks all user code of a manifest, in the container ``code``."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import SupportsFloat

from rl_contracts.documents.rollout import StopReason
from rl_contracts.spec.agent import agents as spec_agents
from rl_contracts.spec.agent.user_code import PythonTool
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.reward import BUILT_IN_SCORERS, Reward
from rl_contracts.spec.reward import Scorer as ScorerSpec
from rl_sampler.scorers import AsyncScorer
from rl_sampler.scorers.response import Response
from rl_sampler.user_code.call import UserCallable, UserCodeError, UserThreads
from rl_sampler.user_code.entry_point import is_async, load, refuse
from rl_sampler.user_code.member import Member
from rl_sampler.user_code.tools import OwnTool, OwnTools, load_tool

EPISODE_SECONDS = 3600.0
"""Time limit of an episode of a user's agent: an agent that hangs would hold its task for ever."""
REASONS = frozenset(StopReason) - {StopReason.ERROR}

Act = Callable[[Member], Awaitable[StopReason]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedCode:
    """The user's scorers, tools and agent, imported."""

    scorers: Mapping[str, AsyncScorer] = field(default_factory=dict)
    """By kind."""
    tools: OwnTools | None = None
    agent: Act | None = None


def load_user_code(spec: RLJobSpec, *, threads: UserThreads) -> LoadedCode:
    """Import all user code of a manifest; takes as long as the user's modules take.

    Raises:
        RefusedError: names the first entry point that cannot be used.
    """
    tools = _tools(spec.agent.tools, threads)
    return LoadedCode(
        scorers=_scorers(spec.reward, threads),
        tools=OwnTools(tools) if tools else None,
        agent=_agent(spec.agent, threads) if spec.agent.entry_point is not None else None,
    )


def _tools(wanted: Sequence[PythonTool], threads: UserThreads) -> list[OwnTool]:
    tools: dict[str, OwnTool] = {}
    for index, section in enumerate(wanted):
        at = f"spec.agent.tools[{index}]"
        tool = load_tool(section, field=at, threads=threads)
        name = tool.tool.name
        if name in tools:
            message = f"The function of another tool is named {name}, too."
            remedy = "Rename one of the functions: the policy calls a tool by its function's name."
            refuse(f"{at}.entryPoint", section.entry_point, message, remedy)
        tools[name] = tool
    return list(tools.values())


def _scorers(reward: Reward, threads: UserThreads) -> dict[str, AsyncScorer]:
    scorers: dict[str, AsyncScorer] = {}
    taken = set(BUILT_IN_SCORERS)
    for index, section in enumerate(reward.scorers):
        at, kind = f"spec.reward.scorers[{index}]", section.kind
        if section.is_own and kind in taken:
            refuse(f"{at}.kind", kind, "Another scorer has this name.", "Choose another name.")
        taken |= {kind} if section.is_own else set()
        if section.entry_point is not None:
            scorers[kind] = _scorer(section, section.entry_point, f"{at}.entryPoint", threads)
    return scorers


def _scorer(section: ScorerSpec, entry_point: str, field: str, threads: UserThreads) -> AsyncScorer:
    options = dict(section.options or {})
    call = load(entry_point, field=field, options=options, positional=1)
    name = f"scorer {section.kind} ({entry_point})"
    code = UserCallable(name=name, call=call, seconds=section.seconds, threads=threads)

    async def score(response: Response) -> float:
        returned = await code(response)
        value = _number(returned)
        if not 0.0 <= value <= 1.0:
            raise UserCodeError(
                f"{name} returned {returned!r:.80}, which is not a number in [0, 1]"
            )
        return value

    return score


def _number(value: object) -> float:
    """The value of a number, such as one of NumPy or PyTorch; NaN for anything else."""
    if not isinstance(value, SupportsFloat):
        return math.nan
    try:
        return float(value)
    except Exception:  # noqa: BLE001 - user code may raise anything, as a tensor of many numbers does
        return math.nan


def _agent(agent: spec_agents.Agent, threads: UserThreads) -> Act:
    entry_point, field = str(agent.entry_point), "spec.agent.entryPoint"
    options = dict(agent.options or {})
    call = load(entry_point, field=field, options=options, positional=1)
    if not is_async(call):
        refuse(field, entry_point, "The agent is not async.", "Define it with `async def`.")
    name = f"agent {entry_point}"
    code = UserCallable(name=name, call=call, seconds=EPISODE_SECONDS, threads=threads)

    async def act(member: Member) -> StopReason:
        reason = await code(member)
        if reason not in REASONS:
            raise UserCodeError(
                f"{name} returned {reason!r:.80}, but must return one of "
                f"{', '.join(sorted(REASONS))}"
            )
        return StopReason(reason)

    return act
