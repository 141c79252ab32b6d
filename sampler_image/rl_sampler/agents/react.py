"""ReAct: thoughts, actions and observations as plain text, for templates that know no tools.

Yao et al., ReAct: Synergizing Reasoning and Acting in Language Models (2210.03629), §2: a thought
and an action in turn, each action followed by its observation, until the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_contracts.documents.rollout import StopReason, Turn
from rl_sampler.agents.member import Member
from rl_sampler.agents.tool_loop import TOO_EARLY
from rl_sampler.agents.turns import Place, in_turns
from rl_sampler.scorers.answers import FINAL
from rl_sampler.tools.formats import WantedCall
from rl_sampler.tools.tool import Tool

LINE = re.compile(
    r"^[ \t]*(?P<word>Action Input|Action|Observation|Final Answer):[ \t]*", re.MULTILINE
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
    """What a response means."""

    call: WantedCall | None = None
    final: bool = False
    invented: bool = False
    """It goes on with an observation that nobody made."""


async def react(member: Member) -> StopReason:
    """Act out an episode whose first response is there; return why it ended."""
    return await in_turns(member, _reply)


def instructions(tools: Sequence[Tool]) -> str:
    """How the policy is told what it can do."""
    return INSTRUCTIONS.format(tools="\n".join(_line(tool) for tool in tools))


def read(text: str) -> Step:
    """Read a response; a step that is neither call nor final is malformed."""
    marks = list(LINE.finditer(text))
    words = [mark["word"] for mark in marks]
    if not words or words[0] == "Final Answer":
        return Step(final=bool(words))
    if words[:2] != ["Action", "Action Input"]:
        return Step()
    name = text[marks[0].end() : marks[1].start()].strip()
    try:
        arguments, _ = json.JSONDecoder().raw_decode(text[marks[1].end() :].lstrip())
    except ValueError:
        return Step()
    call = WantedCall(tool=name, arguments=json.dumps(arguments, ensure_ascii=False))
    return Step(call=call, invented="Observation" in words[2:])


async def _reply(member: Member, turn: Turn, place: Place) -> Sequence[Mapping[str, Any]] | None:
    step = read(turn.text)
    if step.final:
        return [{"role": "user", "content": TOO_EARLY}] if place.early else None
    if step.call is None:
        member.blame("it is neither an action nor a final answer")
        return [{"role": "user", "content": UNREADABLE}]
    if step.invented:
        member.blame("it wrote an observation of its own")
    if place.last:
        return []
    (made,) = await member.make([step.call])
    return [member.chat.said("user", f"Observation: {made.result}")]


def _line(tool: Tool) -> str:
    schema = json.dumps(tool.parameters, ensure_ascii=False)
    return f"{tool.name}: {' '.join(tool.description.split())} Arguments: {schema}"
