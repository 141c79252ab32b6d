"""All user code that a manifest names, imported and checked before the first claim."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from rl_contracts.documents.rollout import StopReason
from rl_contracts.spec.agent import agents as spec_agents
from rl_contracts.spec.agent.sandbox import CODE
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.reward import Reward
from rl_contracts.spec.reward import Scorer as ScorerSpec
from rl_sampler.agents import Agent
from rl_sampler.agents.member import ContextFullError, Member
from rl_sampler.scorers import SCORERS, AsyncScorer
from rl_sampler.scorers.response import Response
from rl_sampler.user_code.code import Code
from rl_sampler.user_code.entry_point import is_async, load, refuse
from rl_sampler.user_code.errors import UserCodeError
from rl_sampler.user_code.tools import OwnTools, load_tool

EPISODE_SECONDS = 3600.0
"""Longest episode of an agent of one's own: one that hangs would keep its task for good."""
REASONS = frozenset(StopReason) - {StopReason.ERROR}


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCode:
    """What the user brought."""

    scorers: Mapping[str, AsyncScorer] = field(default_factory=dict)
    """By their kind."""
    tools: OwnTools | None = None
    agent: Agent | None = None


def load_own(spec: RLJobSpec, *, threads: ThreadPoolExecutor) -> OwnCode:
    """Import all of it; takes as long as the user's modules take.

    Raises:
        RefusedError: the first entry point that cannot be used.
    """
    tools = [
        load_tool(one, field=f"spec.agent.tools[{index}]", threads=threads)
        for index, one in enumerate(spec.agent.tools)
    ]
    return OwnCode(
        scorers=_scorers(spec.reward, threads),
        tools=OwnTools(tools) if tools else None,
        agent=_agent(spec.agent, threads) if spec.agent.entry_point is not None else None,
    )


def _scorers(reward: Reward, threads: ThreadPoolExecutor) -> dict[str, AsyncScorer]:
    found: dict[str, AsyncScorer] = {}
    taken = {*SCORERS, CODE}
    for index, one in enumerate(reward.scorers):
        at = f"spec.reward.scorers[{index}]"
        if one.is_own and one.kind in taken:
            refuse(f"{at}.kind", one.kind, "Another scorer has this name.", "Take another one.")
        taken |= {one.kind} if one.is_own else set()
        if one.entry_point is not None:
            found[one.kind] = _scorer(one, one.entry_point, f"{at}.entryPoint", threads)
    return found


def _scorer(
    one: ScorerSpec, entry_point: str, field: str, threads: ThreadPoolExecutor
) -> AsyncScorer:
    options = dict(one.options or {})
    call = load(entry_point, field=field, options=options, positional=1)
    name = f"scorer {one.kind} ({entry_point})"
    code = Code(name=name, call=call, seconds=one.seconds, threads=threads)

    async def judge(response: Response) -> float:
        value = await code(response)
        if not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
            raise UserCodeError(f"{name} answered {value!r:.80}, which is no number in [0, 1]")
        return float(value)

    return judge


def _agent(agent: spec_agents.Agent, threads: ThreadPoolExecutor) -> Agent:
    entry_point, field = str(agent.entry_point), "spec.agent.entryPoint"
    options = dict(agent.options or {})
    call = load(entry_point, field=field, options=options, positional=1)
    if not is_async(call):
        refuse(field, entry_point, "It is not async.", "Write it as `async def`.")
    name = f"agent {entry_point}"
    code = Code(name=name, call=call, seconds=EPISODE_SECONDS, threads=threads)

    async def act(member: Member) -> StopReason:
        try:
            # So that the end of the claim also ends an agent that waits for something else.
            reason = await member.policy.claim.attend(code(member))
        except ContextFullError:
            return StopReason.CONTEXT
        if reason not in REASONS:
            raise UserCodeError(f"{name} returned {reason!r:.80}, which is no StopReason of its")
        return StopReason(reason)

    return act
