"""Members rebuilt from their saved turns: in order, without gaps, branches and experts included."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import bson
import pytest

from rl_contracts.documents.arrays import unpack_float32, unpack_int32
from rl_contracts.documents.rollout import ImageSpan, Rollout
from rl_contracts.documents.routing import Choices
from rl_contracts.documents.saved_turn import SavedTurn, unfinished
from tests.samples.documents import a_saved_turn, a_task

TASK = a_task(attempt=1)


def turns(*changes: dict[str, Any]) -> list[SavedTurn]:
    """One turn for each, with its changes."""
    return [a_saved_turn(TASK, number, **change) for number, change in enumerate(changes)]


def rebuilt(saved: Sequence[SavedTurn]) -> Rollout:
    rollout = unfinished(saved)
    assert rollout is not None
    return rollout


def test_turns_in_any_order_make_one_sequence() -> None:
    saved = turns({"text": "a"}, {"text": "b"}, {"text": "c"})
    for order in itertools.permutations(saved):
        rollout = rebuilt(order)
        assert unpack_int32(rollout.tokens) == [5, 5, 7, 2, 7, 2, 7, 2]
        assert rollout.mask == b"\0\0\1\1\1\1\1\1"
        assert unpack_float32(rollout.logprobs) == [0, 0, *[-0.5, -0.25] * 3]
        assert [(span.start, span.end) for span in rollout.spans] == [(2, 4), (4, 6), (6, 8)]
        ranges = [(turn.request.start, turn.response.start) for turn in rollout.turns]
        assert ranges == [(0, 2), (4, 4), (6, 6)]
        assert [turn.text for turn in rollout.turns] == ["a", "b", "c"]
        assert rollout.unfinished is not None
        assert (len(rollout.unfinished.shown), rollout.unfinished.heard) == (3, 2)
        assert rollout.error is not None


@pytest.mark.parametrize(
    ("throughs", "present", "usable"),
    [
        ([1, 2, 3], [0, 1, 2], 3),
        ([1, 2, 3], [0, 2], 1),
        ([1, 2, 3], [1, 2], 0),
        ([3, 3, 3], [0, 1], 0),
        ([3, 3, 3], [0, 1, 2], 3),
        ([1, 3, 3], [0, 1], 1),
        ([1, 3, 3, 4], [0, 1, 2], 3),
    ],
)
def test_only_whole_saves_without_a_gap_count(
    throughs: list[int], present: list[int], usable: int
) -> None:
    saved = turns(*({"through": through} for through in throughs))
    rollout = unfinished(saved[number] for number in present)
    assert (len(rollout.turns) if rollout else 0) == usable


def test_a_branch_shows_what_it_stands_behind_and_generates_it_once() -> None:
    saved = turns({}, {"after": 0}, {"after": 0, "text": "branch"}, {"after": 1})
    rollout = rebuilt(saved)
    # The sequence of the last turn comes last.
    assert rollout.sequence_starts == [6]
    assert unpack_int32(rollout.tokens) == [5, 5, 7, 2, 7, 2, 5, 5, 7, 2, 7, 2, 7, 2]
    assert rollout.mask == b"\0\0\0\0\1\1" + b"\0\0\1\1\1\1\1\1"
    assert unpack_float32(rollout.logprobs)[:6] == [0, 0, 0, 0, -0.5, -0.25]
    assert [turn.text for turn in rollout.turns] == ["branch", "ok", "ok", "ok"]
    assert [turn.request.start for turn in rollout.turns] == [0, 6, 10, 12]
    assert len(rollout.spans) == 4


def test_images_and_experts_are_where_they_were() -> None:
    image = ImageSpan(sha256="a", width=28, height=28, start=0, end=1)
    first = Choices(items=2, item_bytes=1, data=b"\1\2\3\4\5\6")
    second = Choices(items=2, item_bytes=1, data=b"\7\x08\x09\x0a")
    saved = turns(
        {"images": [image], "routing": first},
        # The last token of a response was run with the next request.
        {"routing": second, "routed_from": -1},
    )
    rollout = rebuilt(saved)
    assert rollout.images == [image]
    assert rollout.routing is not None
    assert rollout.routing.data == bytes(range(1, 11)) + b"\xff\xff"


def test_bytes_grow_with_the_turns_and_not_with_their_square() -> None:
    sizes = [len(bson.encode(each.to_mongo())) for each in turns(*[{}] * 200)]
    assert max(sizes[1:]) - min(sizes[1:]) == 0
