"""What a person hears of an episode while it goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

import pytest

from rl_contracts.documents.rollout import StopReason
from rl_contracts.requested import AgainEvent, Event, RefusedEvent, TextEvent
from rl_sampler.episodes.listening import Listening
from rl_sampler.episodes.requested import _add_failure
from tests.unit.rl_sampler.user_code.test_program_agent import acted, once

MARK = "é".encode()


def decode(tokens: Sequence[int]) -> str:
    """Bytes to text, as a byte-level tokenizer."""
    return bytes(tokens).decode(errors="replace")


async def heard(listening: Listening, number: int) -> list[Event]:
    async with asyncio.timeout(30):
        return [await listening.next() for _ in range(number)]


async def test_text_is_an_event_once_its_characters_are_whole() -> None:
    listening = Listening()
    listener = listening.listener(decode)
    listener.begins(False)
    for byte in (*b"ab", *MARK):
        await listener.progress(0, [byte])
    events = await heard(listening, 3)
    assert [each.text for each in events if isinstance(each, TextEvent)] == ["a", "b", "é"]


async def test_a_response_that_begins_again_is_an_event_where_something_was_heard() -> None:
    listening = Listening()
    listener = listening.listener(decode)
    listener.begins(False)
    listener.begins(True)  # nothing was heard
    await listener.progress(0, list(b"a"))
    listener.begins(True)
    await listener.progress(0, list(b"b"))
    listener.begins(False)  # the next turn
    await listener.progress(0, list(b"c"))
    assert await heard(listening, 4) == [
        TextEvent(text="a"),
        AgainEvent(),
        TextEvent(text="b"),
        TextEvent(text="c"),
    ]


async def test_a_program_is_played_to_its_end_without_events_of_its_turns() -> None:
    listening, made = Listening(), acted(["42"], once)
    made.member.on_turn = listening.on_turn(made.member.agent)
    assert await made.agent(made.member) is StopReason.STOP
    assert [turn.text for turn in made.member.turns] == ["42"]
    listening.add(AgainEvent())
    assert await heard(listening, 1) == [AgainEvent()], "no other event"


async def test_an_error_that_nobody_expects_ends_the_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fails() -> None:
        raise RuntimeError("broken")

    listening = Listening()
    task = asyncio.create_task(fails())
    task.add_done_callback(partial(_add_failure, listening))
    with caplog.at_level(logging.ERROR):
        (event,) = await heard(listening, 1)
    assert isinstance(event, RefusedEvent)
    assert (event.status, "broken" in caplog.text) == (500, True)
