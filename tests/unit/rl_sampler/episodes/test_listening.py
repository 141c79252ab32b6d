"""What a person hears of an episode while it goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

import pytest

from rl_contracts.requested import AgainEvent, RefusedEvent, TextEvent
from rl_sampler.episodes.listening import Event, Listening
from rl_sampler.episodes.requested import _tell_of_failure

MARK = "é".encode()


def decode(tokens: Sequence[int]) -> str:
    """Bytes to text, as a byte-level tokenizer."""
    return bytes(tokens).decode(errors="replace")


async def heard(listening: Listening, number: int) -> list[Event]:
    async with asyncio.timeout(30):
        return [await listening.next() for _ in range(number)]


async def test_text_is_told_once_its_characters_are_whole() -> None:
    listening = Listening()
    listener = listening.listener(decode)
    listener.begins(False)
    for byte in (*b"ab", *MARK):
        await listener.progress(0, [byte])
    events = await heard(listening, 3)
    assert [each.text for each in events if isinstance(each, TextEvent)] == ["a", "b", "é"]


async def test_a_response_that_begins_again_is_told_where_something_was_heard() -> None:
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


async def test_an_error_that_nobody_expects_ends_the_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fails() -> None:
        raise RuntimeError("broken")

    listening = Listening()
    task = asyncio.create_task(fails())
    task.add_done_callback(partial(_tell_of_failure, listening))
    with caplog.at_level(logging.ERROR):
        (event,) = await heard(listening, 1)
    assert isinstance(event, RefusedEvent)
    assert (event.status, "broken" in caplog.text) == (500, True)
