"""The agent's side of the user's code: calls scorers, tools and agent in the container ``code``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rl_contracts.documents.rollout import StopReason
from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.spec.agent.agents import Agent as AgentSpec
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.reward import Scorer as ScorerSpec
from rl_sampler.agents import Agent
from rl_sampler.agents.member import ContextFullError, Member
from rl_sampler.code.client import CodeContainer, CodeContainerError
from rl_sampler.code.replies import Called, Described, DescribedTool, Failure, Scored
from rl_sampler.code.wire import GRACE_SECONDS, QUEUE_SECONDS
from rl_sampler.engine.problems import Problems
from rl_sampler.scorers import AsyncScorer
from rl_sampler.scorers.response import Response, ScoringError
from rl_sampler.tools.tool import Tool, ToolDownError, ToolResult, ToolSource
from rl_sampler.user_code import acting
from rl_sampler.user_code.call import UserCodeError, UserCodeTimeoutError
from rl_sampler.user_code.load import EPISODE_SECONDS, REASONS

TOPIC = "user code"
RETRY_SECONDS = 1.0
AGENT_ONLY = frozenset({"opened"})
"""Fields of a response that only the agent's own scorers use. They are not sent: a container whose
image derives from an earlier release may not know them."""
BUSY = "too many calls wait there, or an async function blocks it; define that with def instead"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCode:
    """The user's scorers, tools and agent."""

    scorers: Mapping[str, AsyncScorer] = field(default_factory=dict)
    """By kind."""
    tools: ToolSource | None = None
    agent: Agent | None = None


async def user_code_of(spec: RLJobSpec, code: CodeContainer, problems: Problems) -> UserCode:
    """The user's code, once the container has imported it; waits while it cannot.

    Raises:
        RefusedError: names the first entry point that cannot be used.
    """
    described = await _described(code, problems)
    if described.refusal is not None:
        raise RefusedError(Refusal(**described.refusal.model_dump()))
    return UserCode(
        scorers={
            section.kind: _scorer(section, code)
            for section in spec.reward.scorers
            if section.entry_point is not None
        },
        tools=RemoteTools(described.tools, code) if described.tools else None,
        agent=_agent(spec.agent, code) if spec.agent.entry_point is not None else None,
    )


async def _described(code: CodeContainer, problems: Problems) -> Described:
    while True:
        try:
            async with code.call({"call": "describe"}) as channel:
                described = await channel.receive(Described)
            if described.failure is None:
                return described
            reason = described.failure.message
        except CodeContainerError as error:
            reason = str(error)
        problems.note(TOPIC, f"cannot be imported: {reason}")
        await asyncio.sleep(RETRY_SECONDS)


def _scorer(section: ScorerSpec, code: CodeContainer) -> AsyncScorer:
    name = f"scorer {section.kind} ({section.entry_point})"

    async def score(response: Response) -> float:
        sent = {name: value for name, value in asdict(response).items() if name not in AGENT_ONLY}
        request = {"call": "score", "scorer": section.kind, "response": sent}
        seconds = section.seconds + QUEUE_SECONDS + GRACE_SECONDS
        try:
            scored = await code.ask(request, Scored, seconds=seconds)
        except CodeContainerError as error:
            raise UserCodeError(f"{name}: {error}") from error
        except TimeoutError as error:
            raise UserCodeTimeoutError(
                f"{name}: {code.name} gave no answer in {seconds:g} s: {BUSY}"
            ) from error
        if scored.failure is not None:
            raise _error(scored.failure, down=ScoringError)
        return scored.value

    return score


class RemoteTools:
    """The user's functions, as a source of tools beside the MCP servers."""

    def __init__(self, described: Sequence[DescribedTool], code: CodeContainer) -> None:
        """Offer these functions of the container."""
        self._tools = {tool.name: tool for tool in described}
        self._code = code

    async def tools(self) -> list[Tool]:
        """The tools."""
        return [
            Tool(name=tool.name, description=tool.description, parameters=tool.parameters)
            for tool in self._tools.values()
        ]

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a function with the policy's arguments.

        Invalid arguments, a ToolError and a time-out become a failed result for the policy.

        Raises:
            ToolDownError: the function raised it or got no thread, or the container gave no answer
                in time.
            UserCodeError: the function raised another exception, or the container ended.
        """
        request = {"call": "tool", "tool": tool, "arguments": dict(arguments)}
        seconds = self._tools[tool].seconds + QUEUE_SECONDS + GRACE_SECONDS
        try:
            called = await self._code.ask(request, Called, seconds=seconds)
        except CodeContainerError as error:
            raise UserCodeError(f"tool {tool}: {error}") from error
        except TimeoutError as error:
            raise ToolDownError(
                f"tool {tool}: {self._code.name} gave no answer in {seconds:g} s: {BUSY}"
            ) from error
        if called.failure is not None:
            raise _error(called.failure, down=ToolDownError)
        return ToolResult(text=called.text, failed=called.failed)

    async def close(self) -> None:
        """Do nothing: each call has its own connection."""


def _agent(agent: AgentSpec, code: CodeContainer) -> Agent:
    name = f"agent {agent.entry_point}"

    async def episode(member: Member) -> StopReason:
        async with code.call(acting.opening_of(member)) as channel:
            end = await acting.follow(member, channel)
        if end.failure is not None:
            raise _error(end.failure, down=UserCodeError)
        if end.reason not in REASONS:
            raise UserCodeError(f"{name} ended without a reason")
        return end.reason

    async def act(member: Member) -> StopReason:
        limit = asyncio.timeout(EPISODE_SECONDS + GRACE_SECONDS)
        try:
            async with limit:
                # Within the claim, so that its end also ends an agent that waits for something
                # else.
                return await member.policy.claim.run(episode(member))
        except ContextFullError:
            return StopReason.CONTEXT
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise UserCodeTimeoutError(f"{name} took more than {EPISODE_SECONDS:g} s") from error
        except CodeContainerError as error:
            raise UserCodeError(f"{name}: {error}") from error

    return act


def _error(failed: Failure, *, down: type[Exception]) -> Exception:
    """The exception that a failed call raises.

    Args:
        failed: why.
        down: what says that a service which the user's code needs is down.
    """
    if failed.kind == "down":
        return down(failed.message)
    if failed.kind == "time":
        return UserCodeTimeoutError(failed.message)
    return UserCodeError(failed.message)
