"""An episode in its environment: responses become actions, and observations messages."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_contracts.documents.rollout import EnvironmentOutcome, StopReason, ToolCall, Turn
from rl_contracts.documents.task import Message
from rl_contracts.spec.agent.environment import Environment
from rl_sampler.agents.context import show
from rl_sampler.agents.member import Member
from rl_sampler.agents.prompt import PromptError, check_length
from rl_sampler.agents.tool_loop import UNREADABLE
from rl_sampler.environments.actions import (
    NotAnActionError,
    object_in,
    parsed,
    shown,
    tool_error,
)
from rl_sampler.environments.protocol import (
    ActionRefusedError,
    EnvironmentBusyError,
    EnvironmentDownError,
    Seen,
)
from rl_sampler.environments.session import Session
from rl_sampler.tasks.claims import UnusableMemberError
from rl_sampler.tools.formats import WantedCall
from rl_sampler.tools.thoughts import without_thinking
from rl_sampler.tools.toolbox import CUT
from rl_sampler.user_code.call import UserCodeError

STEP = "step"
"""Name of the calls that a turn's record lists for actions that are no tool calls."""
STATE_CHARACTERS = 4096
NOT_AN_ACTION = "That is no action: {why}. Write it again."

Messages = Sequence[Mapping[str, Any]]


@dataclass(slots=True, kw_only=True)
class Play:
    """An episode in its environment."""

    member: Member
    session: Session
    section: Environment
    has_tools: bool
    steps: int = 0
    done: bool = False
    truncated: bool = False
    state: str = ""
    rewards: list[float] = field(default_factory=list)

    async def run(self, first: Seen) -> StopReason:
        """Play from the first observation on; returns why the episode ended."""
        member = self.member
        if first.done:
            raise UnusableMemberError("the environment ended the episode before any action")
        if not member.replayed_turns:
            self._open(self.text_of(first))
        for number in range(member.replayed_turns + 1, member.agent.turns + 1):
            turn = await member.respond()
            if turn.stop_reason is not StopReason.STOP:
                return turn.stop_reason if member.room > 0 else StopReason.CONTEXT
            messages = await self._act(turn)
            if self.done or messages is None:
                return StopReason.TRUNCATED if self.truncated else StopReason.STOP
            if number == member.agent.turns:
                break  # the policy would never see what follows
            if not await show(member, messages):
                return StopReason.CONTEXT
            member.finish_turn(messages)
        return StopReason.TURNS

    def opening(self, observation: str) -> list[Message]:
        """The task's messages with the first observation."""
        member = self.member
        return with_observation(member.messages, member.chat.harmless(observation))

    def _open(self, observation: str) -> None:
        """Begin the token trace with the task and the first observation."""
        member = self.member
        member.messages = self.opening(observation)
        prompt = member.chat.opening(member.messages)
        check_length(prompt, most=member.agent.sampling.max_prompt_tokens)
        if not member.begin(prompt):
            raise PromptError(
                f"task and first observation have {len(prompt)} tokens, which leaves no room in "
                "spec.agent.sampling.maxContextTokens: raise it"
            )

    async def _act(self, turn: Turn) -> Messages | None:
        """Make the actions of a response.

        Returns:
            The messages that answer it; None where the response calls no tool and thereby ends the
            episode.
        """
        if self.section.action == "Tool":
            return await self._call_tools(turn)
        text = without_thinking(turn.text, opened=self.member.opens_thinking(turn)).strip()
        try:
            action = {self.section.text: text} if self.section.action == "Text" else object_in(text)
        except NotAnActionError as error:
            return self._mistake(str(error))
        began = time.monotonic()
        try:
            seen = await self.step(action)
        except ActionRefusedError as error:
            if self.section.action == "Text" and error.by_form:
                raise UserCodeError(
                    f"spec.agent.environment.textField is {self.section.text}, and the server "
                    f"takes no such action: {error}"
                ) from error
            return self._mistake(str(error))
        observed = self.text_of(seen)
        call = _call(STEP, json.dumps(action), "answered", observed, seconds=_since(began))
        self.member.record_steps([call], reward=seen.reward)
        return [self.member.chat.outside_message("user", observed)]

    def _mistake(self, why: str) -> Messages:
        self.member.blame(f"it is no action: {why}")
        message = NOT_AN_ACTION.format(why=why)
        return [self.member.chat.outside_message("user", message)]

    async def _call_tools(self, turn: Turn) -> Messages | None:
        member = self.member
        wanted = await member.calls(turn)
        if wanted.malformed:
            member.blame("its tool call cannot be read")
            return [{"role": "user", "content": UNREADABLE}]
        if not wanted.calls:
            return None
        calls: list[ToolCall] = []
        rewards: list[float] = []
        for each in wanted.calls:
            call, reward = await self._call_tool(each)
            calls.append(call)
            rewards += [] if reward is None else [reward]
            if self.done:
                break
        member.record_steps(calls, reward=math.fsum(rewards) if rewards else None)
        return [member.chat.result(call.tool, call.result) for call in calls]

    async def _call_tool(self, wanted: WantedCall) -> tuple[ToolCall, float | None]:
        began, tools = time.monotonic(), [tool.name for tool in self.member.tools.listed]
        try:
            if wanted.tool not in tools:
                raise NotAnActionError(
                    f"there is no tool {wanted.tool!r}, the tools are {', '.join(tools)}"
                )
            arguments = parsed(wanted.arguments or "{}")
            seen = await self.step(self.action(wanted.tool, arguments))
        except (NotAnActionError, ActionRefusedError) as error:
            self.member.blame(f"it is no action: {error}")
            refusal = NOT_AN_ACTION.format(why=error)
            return _call(wanted.tool, wanted.arguments, "refused", refusal, seconds=0.0), None
        outcome, text = self.answer(seen)
        call = _call(wanted.tool, wanted.arguments, outcome, text, seconds=_since(began))
        return call, seen.reward

    def action(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """What is sent for a recorded call, or for one that the policy wants."""
        if self.section.action != "Tool" or not self.has_tools:
            return arguments
        return {"type": "call_tool", "tool_name": tool, "arguments": arguments}

    def answer(self, seen: Seen) -> tuple[str, str]:
        """Outcome and text of a step, as a turn records it."""
        failed = tool_error(seen.observation) if self.section.action == "Tool" else ""
        return ("failed", self._cut(failed)) if failed else ("answered", self.text_of(seen))

    async def step(self, action: Mapping[str, Any]) -> Seen:
        """Act, and note what the environment says of the episode; errors as ``Session.step``."""
        seen = await self.member.policy.claim.run(self.session.step(action))
        self.steps += 1
        self.done, self.truncated = seen.done, seen.truncated
        if seen.reward is not None:
            self.rewards.append(seen.reward)
        return seen

    def text_of(self, seen: Seen) -> str:
        """The observation as the policy sees it."""
        return self._cut(shown(seen.observation, self.section.observation_field))

    def _cut(self, text: str) -> str:
        longest = self.member.agent.result_characters
        return text if len(text) <= longest else text[:longest] + CUT

    async def read_state(self) -> None:
        """Keep the environment's state at the end; it decides nothing, so it may be missing."""
        try:
            state = await self.member.policy.claim.run(self.session.state())
        except (EnvironmentDownError, EnvironmentBusyError, ActionRefusedError):
            return
        self.state = json.dumps(state)[:STATE_CHARACTERS]

    @property
    def outcome(self) -> EnvironmentOutcome:
        """What the rollout keeps."""
        return EnvironmentOutcome(
            steps=self.steps, done=self.done, truncated=self.truncated, state=self.state
        )


def with_observation(messages: Sequence[Message], observation: str) -> list[Message]:
    """The task's messages with the first observation behind the last of them."""
    *others, last = messages
    if last.role != "user":
        return [*messages, Message(role="user", content=observation)]
    text = "\n\n".join(part for part in (last.text, observation) if part)
    return [*others, Message(role="user", content=text)]


def _call(tool: str, arguments: str, outcome: str, result: str, *, seconds: float) -> ToolCall:
    return ToolCall.model_validate(
        {
            "tool": tool,
            "arguments": arguments,
            "outcome": outcome,
            "result": result,
            "seconds": seconds,
        }
    )


def _since(began: float) -> float:
    return time.monotonic() - began
