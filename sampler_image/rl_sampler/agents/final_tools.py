"""The tool calls of a response, and those that end an episode: ``agent.finalTools``, ``answer``."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rl_contracts.documents.rollout import ToolCall
from rl_sampler.agents.member import Member
from rl_sampler.agents.turns import TurnPosition
from rl_sampler.tools.formats import WantedCall


def names_final_tool(member: Member, wanted: Sequence[WantedCall]) -> bool:
    """Whether one of the calls would end the episode."""
    return any(call.tool in member.tools.final for call in wanted)


async def make_calls(
    member: Member, wanted: Sequence[WantedCall], position: TurnPosition
) -> list[ToolCall] | None:
    """Make the tool calls of a response.

    On the last turn they are made only where one of them ends the episode: the policy would never
    see the results. A call of a tool that is not offered is the policy's error.

    Args:
        member: the episode.
        wanted: at least one call.
        position: of the response.

    Returns:
        The calls with their results, empty where none was made; None where one of them ended the
        episode.

    Raises:
        ToolDownError, UserCodeError: as ``Member.make``.
    """
    if not {call.tool for call in wanted} <= {tool.name for tool in member.tools.listed}:
        member.blame("it calls a tool that is not offered")
    final = names_final_tool(member, wanted)
    if position.last and not final:
        return []
    calls = await member.make(wanted)
    ending = [
        call for call in calls if call.tool in member.tools.final and call.outcome == "answered"
    ]
    if ending:
        member.submitted = submitted_answer(ending[-1], member.tools.final[ending[-1].tool])
        return None
    return [] if position.last else calls


def submitted_answer(call: ToolCall, argument: str | None) -> str | None:
    """The answer in a call's argument.

    Returns:
        A text as it is, any other value as JSON, the empty string where the argument is missing;
        None where no argument holds the answer.
    """
    if argument is None:
        return None
    value = json.loads(call.arguments or "{}").get(argument, "")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
