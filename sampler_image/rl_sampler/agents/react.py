"""Agent ``ReAct``: thoughts, actions and observations as text, for templates without tools.

Yao et al., ReAct: Synergizing Reasoning and Acting in Language Models (2210.03629), §2: a thought
and an action in turn, each action followed by its observation, until the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rl_contracts.documents.rollout import StopReason, Turn
from rl_sampler.agents.final_tools import make_calls, names_final_tool
from rl_sampler.agents.member import Member
from rl_sampler.agents.tool_loop import TOO_EARLY
from rl_sampler.agents.turns import Messages, TurnPosition, run_turns
from rl_sampler.scorers.answers import FINAL
from rl_sampler.tools.formats import WantedCall
from rl_sampler.tools.thoughts import behind_thoughts
from rl_sampler.tools.tool import Tool

LINE = re.compile(
    r"^[ \t]*(?P<label>Action Input|Action|Observation|Final Answer):[ \t]*", re.MULTILINE
)
INSTRUCTIONS = f"""\
You can use these tools:
{{tools}}

To use one, write
Thought: what you think
Action: the name of the tool
Action Input: its arguments as a JSON object
and stop there. You are then told what it answered, as Observation. When you know enough, write
Thought: what you think
{FINAL} the answer"""
UNREADABLE = (
    "That is neither an action with its input as a JSON object, nor a final answer. Write it again."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The meaning of a response; neither a call nor final where it is malformed."""

    call: WantedCall | None = None
    final: bool = False
    invented: bool = False
    """The policy wrote an observation itself instead of waiting for it. The label alone is none:
    as a stop text it ends the response."""


async def react(member: Member) -> StopReason:
    """Run an episode whose first response was sampled already; returns why it ended."""
    return await run_turns(member, _reply)


def instructions(tools: Sequence[Tool]) -> str:
    """Text that explains the tools and the format to the policy."""
    return INSTRUCTIONS.format(tools="\n".join(_line(tool) for tool in tools))


def read(text: str) -> Step:
    """Parse a response."""
    marks = list(LINE.finditer(text))
    labels = [mark["label"] for mark in marks]
    if not labels or labels[0] == "Final Answer":
        return Step(final=bool(labels))
    if labels[:2] != ["Action", "Action Input"]:
        return Step()
    name = text[marks[0].end() : marks[1].start()].strip()
    try:
        parsed, _ = json.JSONDecoder().raw_decode(text[marks[1].end() :].lstrip())
        arguments = json.dumps(parsed, ensure_ascii=False)
        arguments.encode()  # escapes may hold half a surrogate pair, which no store takes
    except (ValueError, RecursionError):
        return Step()
    call = WantedCall(tool=name, arguments=arguments)
    observed = next((mark for mark in marks[2:] if mark["label"] == "Observation"), None)
    return Step(call=call, invented=observed is not None and bool(text[observed.end() :].strip()))


async def _reply(member: Member, turn: Turn, position: TurnPosition) -> Messages | None:
    opened = member.opens_thinking(turn)
    step = read(behind_thoughts(turn.text, begins=LINE, opened=opened))
    if step.final:
        return [{"role": "user", "content": TOO_EARLY}] if position.early else None
    if step.call is None:
        member.blame("it is neither an action nor a final answer")
        return [{"role": "user", "content": UNREADABLE}]
    if step.invented:
        member.blame("it wrote an observation of its own")
    if position.early and names_final_tool(member, [step.call]):
        return [{"role": "user", "content": TOO_EARLY}]
    calls = await make_calls(member, [step.call], position)
    if calls is None:
        return None
    return [
        member.chat.outside_message("user", f"Observation: {call.result}", call.images)
        for call in calls
    ]


def _line(tool: Tool) -> str:
    schema = json.dumps(tool.parameters, ensure_ascii=False)
    return f"{tool.name}: {' '.join(tool.description.split())} Arguments: {schema}"
