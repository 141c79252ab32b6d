from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_contracts.documents.arrays import (
    count_int32,
    pack_float32,
    pack_int32,
    repeat_float32,
    repeat_int32,
    unpack_float32,
    unpack_int32,
)


def test_packing_is_little_endian() -> None:
    assert pack_int32([1, -1]) == b"\x01\0\0\0\xff\xff\xff\xff"
    assert pack_float32([0.5]) == struct.pack("<f", 0.5)


@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_integers_survive_packing(values: list[int]) -> None:
    assert unpack_int32(pack_int32(values)) == values


@given(st.lists(st.floats(width=32, allow_nan=False)))
def test_float32_values_survive_packing_exactly(values: list[float]) -> None:
    assert unpack_float32(pack_float32(values)) == values


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_integers_outside_int32_are_refused(value: int) -> None:
    with pytest.raises(OverflowError):
        pack_int32([value])


def test_bytes_of_an_incomplete_element_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple"):
        unpack_int32(b"\0\0\0")


@given(count=st.integers(0, 300), value=st.integers(-5, 2**31 - 1))
def test_repeat_and_count_equal_packing(count: int, value: int) -> None:
    assert repeat_int32(value, count) == pack_int32([value] * count)
    assert repeat_float32(0.1, count) == pack_float32([0.1] * count)
    assert count_int32(count) == pack_int32(range(count))
