"""Context engineering: what is removed when the next turn may not fit into the context.

What the policy generated is kept token by token or not at all. Where something is removed the
sequence is closed as it is and another sequence begins, so that every token trains on the context
that it was sampled from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rl_contracts.documents.rollout import Turn
from rl_contracts.documents.task import Message
from rl_contracts.spec.agent.tools import Context
from rl_sampler.agents.images import images_in, text_of
from rl_sampler.agents.member import GeneratedSegment, Member, Segment, ShownSegment
from rl_sampler.tools.thoughts import without_thinking

DISCARDED = "[discarded to save room]"
SUMMARISE = (
    "The context is full and will be cleared. Write down all that you need to go on: what is "
    "asked, what you found, what is left to do. Call no tool."
)
NOTES = "\n\nYou have worked on this before. Your notes:\n"


async def show(member: Member, reply: Sequence[Mapping[str, Any]]) -> bool:
    """Append messages to the context, and make room for the next turn as the manifest says.

    Returns:
        False where no token could follow the messages; then nothing was appended.
    """
    context = member.agent.context or Context()
    tokens = member.between(reply)
    left = member.room - len(tokens) - member.agent.sampling.max_tokens_per_turn
    if context.overflow == "DiscardTools" and left < 0:
        whole: list[Segment] = [*member.history, ShownSegment(list(reply))]
        left_over = without_results(whole, keep=context.kept)
        going_on = len(member.trace) + len(tokens)
        if left_over != whole and member.begin(member.prompt, left_over, below=going_on):
            return True
    if context.overflow == "DiscardAll" and left < context.summary:
        return await _restart_with_notes(member, reply, limit=context.summary)
    return member.show(reply, tokens)


def without_results(history: Sequence[Segment], *, keep: int) -> list[Segment]:
    """The history in which a note replaces all tool results but the last ``keep``.

    Results that are no longer than the note stay.
    """
    left = keep
    newest_first: list[Segment] = []
    for segment in reversed(history):
        if isinstance(segment, GeneratedSegment):
            newest_first.append(segment)
            continue
        messages = []
        for message in reversed(segment.messages):
            if message["role"] == "tool":
                left -= 1
            discard = message["role"] == "tool" and left < 0 and _saves_room(message)
            messages.append({**message, "content": DISCARDED} if discard else message)
        newest_first.append(ShownSegment(messages[::-1]))
    return newest_first[::-1]


def _saves_room(result: Mapping[str, Any]) -> bool:
    """Whether a result is longer than the note in its place."""
    return bool(images_in([result])) or len(text_of(result)) > len(DISCARDED)


async def _restart_with_notes(
    member: Member, reply: Sequence[Mapping[str, Any]], *, limit: int
) -> bool:
    """Clear the context; only the policy's own notes stay, at most ``limit`` tokens of them.

    Notes that do not fit are left out: otherwise they would be the last that the policy said.
    """
    request = [*reply, {"role": "user", "content": SUMMARISE}]
    notes = ""
    if limit and member.show(request, member.between(request)):
        notes = _notes(member, await member.respond(limit=limit))
    if notes and member.begin(member.chat.opening(_with_notes(member.messages, notes))):
        return True
    return member.begin(member.chat.opening(member.messages))


def _notes(member: Member, turn: Turn) -> str:
    """What a response says behind its thoughts; nothing where these were cut off."""
    said = without_thinking(turn.text, opened=member.opens_thinking(turn))
    return member.chat.harmless(said.strip())


def _with_notes(messages: Sequence[Message], notes: str) -> list[Message]:
    *others, last = messages
    if last.images:
        return [*others, last.with_text(NOTES + notes)]
    return [*others, Message(role=last.role, content=last.text + NOTES + notes)]
