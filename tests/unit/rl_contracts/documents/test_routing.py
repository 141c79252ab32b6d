from __future__ import annotations

import struct

import pytest

from rl_contracts.documents.routing import Choices, assembled, narrowed


def packed(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}i", *numbers)


def numbers(choices: Choices) -> list[int]:
    return list(struct.unpack(f"<{len(choices.canonical) // 2}h", choices.canonical))


def test_choices_take_one_byte_where_all_experts_fit_it() -> None:
    small = narrowed(packed(0, 254, 7, 3), tokens=2)
    assert (small.items, small.item_bytes, small.data) == (2, 1, bytes([0, 254, 7, 3]))
    assert numbers(small) == [0, 254, 7, 3]


@pytest.mark.parametrize("largest", [255, 256, 32767])
def test_choices_of_more_experts_take_two_bytes(largest: int) -> None:
    large = narrowed(packed(0, largest), tokens=1)
    assert (large.items, large.item_bytes) == (2, 2)
    assert numbers(large) == [0, largest]


@pytest.mark.parametrize("raw", [packed(-1), packed(32768), packed(1, 2, 3), b"", b"abc"])
def test_what_is_no_expert_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"numbers|negative"):
        narrowed(raw, tokens=2 if len(raw) == 12 else 1)


def test_pieces_become_the_choices_of_a_rollout() -> None:
    pieces = [(0, narrowed(packed(1, 2), tokens=2)), (3, narrowed(packed(300), tokens=1))]
    routing = assembled(pieces, tokens=5)
    assert routing is not None
    assert (routing.items, routing.item_bytes, routing.tokens) == (1, 2, 5)
    assert numbers(routing) == [1, 2, -1, 300, -1]


def test_a_later_piece_replaces_an_earlier_one() -> None:
    pieces = [(0, narrowed(packed(1, 2), tokens=2)), (1, narrowed(packed(5, 6), tokens=2))]
    routing = assembled(pieces, tokens=4)
    assert routing is not None
    assert numbers(routing) == [1, 5, 6, -1]
    assert routing.item_bytes == 1


def test_pieces_of_two_models_are_refused() -> None:
    with pytest.raises(ValueError, match=r"different numbers of choices: \[1, 2\]"):
        assembled(
            [(0, narrowed(packed(1), tokens=1)), (1, narrowed(packed(1, 2), tokens=1))], tokens=2
        )
    assert assembled([], tokens=2) is None
