from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from rl_console.queries.turn_images import by_turn
from rl_contracts.documents.rollout import ImageSpan, TokenRange, ToolCall, Turn
from rl_contracts.documents.task import ImagePart
from rl_contracts.queries.answers import RolloutAnswer


def a_turn(start: int, *called: str) -> Turn:
    """A turn of ten tokens, half of them its request's."""
    images = [ImagePart(sha256=each, width=28, height=28) for each in called]
    call = ToolCall(
        tool="look", arguments="{}", outcome="answered", result="", images=images, seconds=0.1
    )
    return Turn(
        request=TokenRange(start=start, end=start + 5),
        response=TokenRange(start=start + 5, end=start + 10),
        stop_reason="stop",
        text="",
        calls=[call] if called else [],
    )


def shown(
    turns: Sequence[Turn], images: Sequence[tuple[str, int]], starts: Sequence[int] = ()
) -> list[list[str]]:
    spans = [
        ImageSpan(sha256=name, width=28, height=28, start=at, end=at + 1) for name, at in images
    ]
    given = SimpleNamespace(turns=turns, images=spans, sequence_starts=list(starts))
    return [[each.sha256 for each in turn.shown] for turn in by_turn(cast("RolloutAnswer", given))]


@pytest.mark.parametrize(
    ("turns", "images", "starts", "expected"),
    [
        ([], [("a", 1)], [], []),
        ([a_turn(0)], [("a", 1), ("b", 3)], [], [["a", "b"]]),
        # The result of a call stands with the call, not again before the next turn.
        ([a_turn(0, "b"), a_turn(10)], [("a", 1), ("b", 12)], [], [["a"], []]),
        # A user who shows the same picture again has shown it twice.
        ([a_turn(0), a_turn(10)], [("a", 1), ("a", 12)], [], [["a"], ["a"]]),
        # A new sequence repeats what the one before had, besides what is new.
        ([a_turn(0, "b"), a_turn(10)], [("a", 1), ("a", 11), ("c", 12)], [10], [["a"], ["c"]]),
        ([a_turn(0, "b"), a_turn(10), a_turn(20)], [("b", 11), ("b", 21)], [20], [[], [], []]),
    ],
)
def test_each_image_stands_in_the_turn_in_which_it_came(
    turns: list[Turn], images: list[tuple[str, int]], starts: list[int], expected: list[list[str]]
) -> None:
    assert shown(turns, images, starts) == expected
