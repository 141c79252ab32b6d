"""Shuffles without a list: where a record of one pass over a source stands."""

from __future__ import annotations

import hashlib

ROUNDS = 8


def shuffled(index: int, *, size: int, key: str) -> int:
    """Place ``index`` of the shuffle of ``range(size)`` that ``key`` names.

    A Feistel network is a permutation whatever its round function does; numbers outside of the
    range are sent through it again until they fall inside ("cycle walking", Black and Rogaway,
    https://doi.org/10.1007/3-540-45760-7_9), which leaves a permutation of the range. It needs
    neither memory nor the places before this one, and is the same on every machine.

    Args:
        index: in [0, size).
        size: ≥ 1.
        key: any text; another one is another shuffle.

    Returns:
        A number in [0, size).
    """
    assert 0 <= index < size
    if size == 1:
        return 0
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    secret = hashlib.sha256(key.encode()).digest()
    value = _feistel(index, half=half, key=secret)
    while value >= size:
        value = _feistel(value, half=half, key=secret)
    return value


def _feistel(value: int, *, half: int, key: bytes) -> int:
    mask = (1 << half) - 1
    left, right = value >> half, value & mask
    for number in range(ROUNDS):
        mixed = hashlib.blake2b(right.to_bytes(8) + bytes((number,)), key=key, digest_size=8)
        left, right = right, left ^ (int.from_bytes(mixed.digest()) & mask)
    return left << half | right
