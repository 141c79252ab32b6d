"""Packed little-endian arrays, which documents hold instead of lists of numbers."""

from __future__ import annotations

import functools
import sys
from array import array
from collections.abc import Iterable
from typing import TypeVar

ITEM_BYTES = 4

N = TypeVar("N", int, float)


def pack_int32(values: Iterable[int]) -> bytes:
    """Pack integers in [-2³¹, 2³¹) as little-endian int32; OverflowError outside."""
    return _swapped(array("i", values)).tobytes()


def pack_float32(values: Iterable[float]) -> bytes:
    """Pack numbers as little-endian float32."""
    return _swapped(array("f", values)).tobytes()


def repeat_int32(value: int, count: int) -> bytes:
    """``pack_int32([value] * count)``, without the list."""
    return _swapped(array("i", [value]) * count).tobytes()


def repeat_float32(value: float, count: int) -> bytes:
    """``pack_float32([value] * count)``, without the list."""
    return _swapped(array("f", [value]) * count).tobytes()


def count_int32(count: int) -> bytes:
    """``pack_int32(range(count))``, sliced from a cached array."""
    return _counted(1 << count.bit_length())[: ITEM_BYTES * count]


@functools.lru_cache(maxsize=4)
def _counted(count: int) -> bytes:
    return pack_int32(range(count))


def unpack_int32(packed: bytes) -> list[int]:
    """Inverse of pack_int32; ValueError when the length is no multiple of four."""
    values = array("i")
    values.frombytes(packed)
    return _swapped(values).tolist()


def unpack_float32(packed: bytes) -> list[float]:
    """Inverse of pack_float32, exact; ValueError when the length is no multiple of four."""
    values = array("f")
    values.frombytes(packed)
    return _swapped(values).tolist()


def _swapped(values: array[N]) -> array[N]:
    assert values.itemsize == ITEM_BYTES
    if sys.byteorder == "big":
        values.byteswap()
    return values
