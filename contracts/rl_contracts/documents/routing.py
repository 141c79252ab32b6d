"""The experts that an engine's routers chose for the tokens of a rollout, compact."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from rl_contracts.documents.base import Record

FORMAT: Literal["rl-operator/routing/1"] = "rl-operator/routing/1"
CANONICAL_BYTES = 2
"""Of a number in ``canonical``."""
UNKNOWN = 255
"""Of each byte of a number that is not known."""
WIDENED = bytes(byte if byte == UNKNOWN else 0 for byte in range(256))
"""The second byte of a number of one byte."""


class Choices(Record):
    """Experts of neighbouring tokens: token by token, of each all layers, of each its experts.

    Layers without experts have numbers, too, which mean nothing.
    """

    items: int
    """Numbers of a token: the model's layers times the experts of a token, ≥ 1."""
    item_bytes: Literal[1, 2]
    """1: unsigned bytes; 2: unsigned little-endian. All bits set: not known, as of the last token
    of a sequence, which the engine has never run."""
    data: bytes

    @property
    def tokens(self) -> int:
        """Tokens that it has numbers of."""
        return len(self.data) // (self.items * self.item_bytes)

    @property
    def canonical(self) -> bytes:
        """The same numbers as little-endian int16, -1 where they are not known."""
        if self.item_bytes == CANONICAL_BYTES:
            return self.data
        wide = bytearray(CANONICAL_BYTES * len(self.data))
        wide[0::2], wide[1::2] = self.data, self.data.translate(WIDENED)
        return bytes(wide)


class Routing(Choices):
    """``Choices`` of all tokens of a rollout."""

    format: Literal["rl-operator/routing/1"] = FORMAT


def narrowed(raw: bytes, *, tokens: int) -> Choices:
    """Experts as the engine returns them, in as few bytes as they need.

    Args:
        raw: little-endian int32, equally many for each token.
        tokens: ≥ 1.

    Raises:
        ValueError: their number is no multiple of the tokens, or one of them is no expert.
    """
    items, rest = divmod(len(raw), 4 * tokens)
    if rest or not items:
        raise ValueError(f"{len(raw)} bytes are not equally many numbers for {tokens} tokens")
    low, high = raw[0::4], raw[1::4]
    if any(raw[2::4]) or any(raw[3::4]) or max(high) > 0x7F:
        raise ValueError("one of them is negative or above 32767")
    if not any(high) and max(low) < UNKNOWN:
        return Choices(items=items, item_bytes=1, data=low)
    data = bytearray(2 * len(low))
    data[0::2], data[1::2] = low, high
    return Choices(items=items, item_bytes=2, data=bytes(data))


def assembled(pieces: Iterable[tuple[int, Choices]], *, tokens: int) -> Routing | None:
    """The choices of a rollout's tokens; None without any.

    Args:
        pieces: index of the first token, and choices; a later piece replaces an earlier one.
        tokens: of the rollout.

    Raises:
        ValueError: pieces are of different models.
    """
    known = list(pieces)
    if not known:
        return None
    items = {piece.items for _, piece in known}
    if len(items) != 1:
        raise ValueError(f"tokens have different numbers of choices: {sorted(items)}")
    wide = any(piece.item_bytes == CANONICAL_BYTES for _, piece in known)
    width, (each,) = (CANONICAL_BYTES if wide else 1), items
    data = bytearray(bytes([UNKNOWN]) * (tokens * each * width))
    for start, piece in known:
        part = piece.canonical if wide else piece.data
        at = start * each * width
        data[at : at + len(part)] = part
    return Routing(items=each, item_bytes=2 if wide else 1, data=bytes(data))
