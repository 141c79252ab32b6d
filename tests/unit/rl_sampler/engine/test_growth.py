"""Streams of the engine: whole responses in each event, or only what is new."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from rl_sampler.engine.errors import EngineProtocolError, EngineRefusedError
from rl_sampler.engine.growth import read_stream


def event(tokens: Sequence[int], *, total: int, reason: str | None = None, index: int = 0) -> Any:
    return {
        "index": index,
        "output_ids": list(tokens),
        "meta_info": {
            "finish_reason": reason and {"type": reason},
            "completion_tokens": total,
            "output_token_logprobs": [[-0.5, token, None] for token in tokens],
            "weight_versions": [{"version": "1", "start": 0, "end": total}],
        },
    }


def response(events: Sequence[Any], *, size: int) -> Any:
    """An answer whose bytes come in parts of this size."""
    lines = [b"data: " + json.dumps(each).encode() + b"\n\n" for each in events]
    data = b"".join([*lines, b"data: [DONE]\n\n"])

    async def parts() -> AsyncIterator[bytes]:
        for start in range(0, len(data), size):
            yield data[start : start + size]

    return SimpleNamespace(content=SimpleNamespace(iter_any=parts))


async def read(events: Sequence[Any], *, members: int = 1, size: int = 7) -> tuple[Any, list[Any]]:
    seen: list[Any] = []

    async def progress(number: int, tokens: list[int]) -> None:
        seen.append((number, tokens))

    answer = await read_stream(response(events, size=size), members=members, progress=progress)
    return answer, seen


WHOLE = [event([5], total=1), event([5, 6, 7], total=3, reason="stop")]
NEW = [event([5], total=1), event([6, 7], total=3, reason="stop")]


@pytest.mark.parametrize("events", [WHOLE, NEW], ids=["whole", "new"])
@pytest.mark.parametrize("size", [1, 50, 100_000])
async def test_stream_gives_new_tokens_and_then_the_whole_answer(
    events: list[Any], size: int
) -> None:
    (answer,), seen = await read(events, size=size)
    assert seen == [(0, [5]), (0, [6, 7])]
    assert answer == WHOLE[-1]


async def test_members_grow_side_by_side() -> None:
    events = [
        event([1], total=1, index=1),
        event([5], total=1),
        event([1, 2], total=2, reason="length", index=1),
        event([5, 6], total=2, reason="stop"),
    ]
    (first, second), seen = await read(events, members=2)
    assert seen == [(1, [1]), (0, [5]), (1, [2]), (0, [6])]
    assert (first["output_ids"], second["output_ids"]) == ([5, 6], [1, 2])


@pytest.mark.parametrize(
    ("events", "message"),
    [
        (WHOLE[:1], "ended its stream before"),
        ([event([5], total=3)], "1 of 3 tokens"),
        ([event([5], total=1, index=4)], "unexpected event"),
        ([{"text": "?"}], "unexpected event"),
    ],
)
async def test_torn_or_malformed_stream_is_an_error(events: list[Any], message: str) -> None:
    with pytest.raises(EngineProtocolError, match=message):
        await read(events)


async def test_refusal_within_a_stream_is_the_engines() -> None:
    with pytest.raises(EngineRefusedError, match="no room"):
        await read([{"error": {"message": "no room"}}])
