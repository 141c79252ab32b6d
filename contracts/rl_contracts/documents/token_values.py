"""What a training step computed of each generated token, compact: for viewers alone.

Every data rank writes those of the sequences that it computed, as one object: a length, an index in
JSON, and then for each sequence of G generated tokens G gaps and G entropies, all little-endian
float16. Nothing is trained from them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from rl_contracts.errors import IntegrityError

FORMAT = "rl-operator/token-values/1"
VALUE_BYTES = 2
"""Of a float16."""
TOKEN_BYTES = 2 * VALUE_BYTES
LENGTH_BYTES = 4
"""Of the length of the index: uint32, little-endian."""
MOST_INDEX_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceValues:
    """Of a sequence of G generated tokens, in their order."""

    rollout: str
    first: int
    """Its first generated token, counted among the generated tokens of the rollout."""
    gaps: bytes
    """float16 ``[G]``: log-probability by the trainer, as the step first met the token, minus the
    engine's. Both at the temperature of the task, in nats."""
    entropies: bytes
    """float16 ``[G]``: entropy of the trainer's distribution of the token, in nats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Where the values of a sequence lie in an object."""

    rollout: str
    first: int
    count: int
    """Generated tokens."""
    offset: int
    """Bytes before its values, counted from the end of the index."""


def encode(sequences: Sequence[SequenceValues]) -> bytes:
    """The object that a rank writes."""
    rows = [[each.rollout, each.first, len(each.gaps) // VALUE_BYTES] for each in sequences]
    index = json.dumps({"format": FORMAT, "sequences": rows}, separators=(",", ":")).encode()
    values = [part for each in sequences for part in (each.gaps, each.entropies)]
    return b"".join([len(index).to_bytes(LENGTH_BYTES, "little"), index, *values])


def index_bytes(start: bytes) -> int:
    """Length of the index, by the object's first bytes; raises IntegrityError."""
    length = int.from_bytes(start[:LENGTH_BYTES], "little")
    if len(start) < LENGTH_BYTES or length > MOST_INDEX_BYTES:
        raise IntegrityError(f"its index would have {length} bytes")
    return length


def parts(index: bytes, *, rollout: str) -> list[Part]:
    """The sequences of a rollout in an index; raises IntegrityError where it is none."""
    try:
        read = json.loads(index)
        if read["format"] != FORMAT:
            raise IntegrityError(f"its format is {read['format']}, this release knows {FORMAT}")
        rows = [(str(name), int(first), int(count)) for name, first, count in read["sequences"]]
    except (ValueError, TypeError, KeyError) as error:
        raise IntegrityError("its index cannot be read") from error
    if any(first < 0 or count < 0 for _, first, count in rows):
        raise IntegrityError("its index has negative numbers")
    chosen, offset = [], 0
    for name, first, count in rows:
        if name == rollout:
            chosen.append(Part(rollout=name, first=first, count=count, offset=offset))
        offset += TOKEN_BYTES * count
    return chosen


def unpack_float16(packed: bytes) -> list[float]:
    """Numbers of a packed little-endian float16 array of whole items."""
    return list(struct.unpack(f"<{len(packed) // VALUE_BYTES}e", packed))
