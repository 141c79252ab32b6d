from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_contracts.documents.token_values import (
    LENGTH_BYTES,
    TOKEN_BYTES,
    VALUE_BYTES,
    SequenceValues,
    encode,
    index_bytes,
    parts,
    unpack_float16,
)
from rl_contracts.errors import IntegrityError

VALUES = st.lists(st.tuples(st.floats(width=16), st.floats(width=16)), max_size=5)


def half(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}e", *values)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), VALUES), max_size=6))
def test_what_was_written_of_each_sequence_is_read_again(
    rows: list[tuple[str, int, list[tuple[float, float]]]],
) -> None:
    sequences = [
        SequenceValues(
            rollout=rollout,
            first=first,
            gaps=half(*(gap for gap, _ in values)),
            entropies=half(*(entropy for _, entropy in values)),
        )
        for rollout, first, values in rows
    ]
    content = encode(sequences)
    begins = LENGTH_BYTES + index_bytes(content)
    assert len(content) == begins + sum(TOKEN_BYTES * len(values) for _, _, values in rows)
    for rollout in "abc":
        read = []
        for part in parts(content[LENGTH_BYTES:begins], rollout=rollout):
            packed = content[begins + part.offset :][: TOKEN_BYTES * part.count]
            size = VALUE_BYTES * part.count
            read.append((part.first, packed[:size], packed[size:]))
        assert read == [
            (each.first, each.gaps, each.entropies) for each in sequences if each.rollout == rollout
        ]


def test_numbers_are_float16() -> None:
    assert unpack_float16(half(-0.5, 65504.0)) == [-0.5, 65504.0]


@pytest.mark.parametrize("start", [b"", b"\x01\x00", b"\xff\xff\xff\xff"])
def test_an_impossible_length_of_the_index_is_refused(start: bytes) -> None:
    with pytest.raises(IntegrityError, match="index would have"):
        index_bytes(start)


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        (b"", "cannot be read"),
        (b"[]", "cannot be read"),
        (b'{"format":"rl-operator/token-values/2"}', "its format is"),
        (b'{"format":"rl-operator/token-values/1","sequences":[["a",0]]}', "cannot be read"),
        (b'{"format":"rl-operator/token-values/1","sequences":[["a",0,-1]]}', "negative"),
    ],
)
def test_a_damaged_index_is_refused(index: bytes, reason: str) -> None:
    with pytest.raises(IntegrityError, match=reason):
        parts(index, rollout="a")
