"""Context engineering: what goes when the next turn may not fit any more.

What the policy generated is kept as its tokens or not at all; a sequence that loses something is
closed as it stands and another one begins, so that each trains on what was really before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rl_contracts.documents.task import Message
from rl_contracts.spec.agent.tools import Context
from rl_sampler.agents.member import Member, Said, Segment, Shown

DISCARDED = "[discarded to save room]"
SUMMARISE = (
    "The context is full and will be cleared. Write down all that you need to go on: what is "
    "asked, what you found, what is left to do. Call no tool."
)
NOTES = "\n\nYou have worked on this before. Your notes:\n"


async def show(member: Member, reply: Sequence[Mapping[str, Any]]) -> bool:
    """Put messages before the policy, and make room for its next turn as the manifest says.

    Returns:
        False where not even one token could follow; then nothing was shown.
    """
    context = member.agent.context or Context()
    tokens = member.chat.between(reply)
    left = member.room - len(tokens) - member.agent.sampling.max_tokens_per_turn
    if context.overflow == "DiscardTools" and left < 0:
        whole: list[Segment] = [*member.history, Shown(reply)]
        return member.begin(member.prompt, without_results(whole, keep=context.kept))
    if context.overflow == "DiscardAll" and left < context.summary:
        return await _begin_anew(member, reply, summary=context.summary)
    return member.show(reply, tokens)


def without_results(history: Sequence[Segment], *, keep: int) -> list[Segment]:
    """The history with all tool results but the last ``keep`` replaced by a note."""
    left = keep
    found: list[Segment] = []
    for segment in reversed(history):
        if isinstance(segment, Said):
            found.append(segment)
            continue
        messages = []
        for message in reversed(segment.messages):
            if message["role"] == "tool":
                left -= 1
            discard = message["role"] == "tool" and left < 0
            messages.append({**message, "content": DISCARDED} if discard else message)
        found.append(Shown(messages[::-1]))
    return found[::-1]


async def _begin_anew(member: Member, reply: Sequence[Mapping[str, Any]], *, summary: int) -> bool:
    """Clear the context; the policy's own notes are all that stays, where it can write any."""
    asking = [*reply, {"role": "user", "content": SUMMARISE}]
    notes = ""
    if summary and member.show(asking, member.chat.between(asking)):
        notes = (await member.respond(limit=summary)).text
    return member.begin(member.chat.opening(_noted(member.messages, notes)))


def _noted(messages: Sequence[Message], notes: str) -> list[Message]:
    if not notes:
        return list(messages)
    *others, last = messages
    return [*others, Message(role=last.role, content=last.text + NOTES + notes)]
