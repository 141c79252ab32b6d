"""Store of what training steps computed of each token: objects beside those of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rl_contracts.documents.token_values import (
    LENGTH_BYTES,
    TOKEN_BYTES,
    VALUE_BYTES,
    Part,
    SequenceValues,
    encode,
    index_bytes,
    parts,
    unpack_float16,
)
from rl_contracts.errors import IntegrityError
from rl_contracts.ids import batch_run
from rl_contracts.stores.objects import Objects, ObjectStat

MOST_RANKS = 4096
NAME = "tokens-"
START_BYTES = 64 << 10
"""Read of each object at first: it holds the index of about a thousand sequences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenValues:
    """Of the generated tokens of a rollout, None where nothing is stored of a token."""

    gaps: list[float | None]
    """Log-probability by the trainer minus the engine's, in nats."""
    entropies: list[float | None]
    """In nats."""


class TokenValueStore:
    """Values of tokens by batch. They lie below the batch's prefix and are deleted with it.

    The id of a batch holds the epoch of the trainer that formed it, so a trainer that was replaced
    writes nothing into the batches of its successor.
    """

    def __init__(self, objects: Objects) -> None:
        """Use a bucket."""
        self._objects = objects

    def put(self, batch: str, *, data_rank: int, values: Sequence[SequenceValues]) -> None:
        """Write what a data rank computed of a batch."""
        self._objects.put(f"{self._prefix(batch)}{data_rank:05d}", encode(values))

    def of_rollout(self, batch: str, rollout: str, *, generated: int) -> TokenValues:
        """Values of a rollout's generated tokens, as a batch trained it.

        Reads the index of each rank's object until all tokens are known, and of the values only
        the rollout's.

        Raises:
            IntegrityError: an object is damaged.
            StoreUnavailableError: the bucket does not answer.
        """
        gaps: list[float | None] = [None] * generated
        entropies: list[float | None] = [None] * generated
        left = generated
        for each in self._objects.list(self._prefix(batch), most=MOST_RANKS):
            begins, chosen = self._index(each, rollout)
            left -= sum(part.count for part in chosen)
            if left < 0 or any(part.first + part.count > generated for part in chosen):
                raise IntegrityError(
                    f"{self._objects.uri(each.key)} has values of more tokens of rollout "
                    f"{rollout} than its {generated}"
                )
            for part in chosen:
                packed = self._range(each.key, begins + part.offset, TOKEN_BYTES * part.count)
                place, half = slice(part.first, part.first + part.count), VALUE_BYTES * part.count
                gaps[place] = unpack_float16(packed[:half])
                entropies[place] = unpack_float16(packed[half:])
            if left == 0:
                break
        return TokenValues(gaps=gaps, entropies=entropies)

    def _index(self, stored: ObjectStat, rollout: str) -> tuple[int, list[Part]]:
        """Where the values of an object begin, and those of a rollout among them."""
        start = self._range(stored.key, 0, min(stored.size_bytes, START_BYTES))
        try:
            begins = LENGTH_BYTES + index_bytes(start)
            if begins > len(start):
                start += self._range(stored.key, len(start), begins - len(start))
            return begins, parts(start[LENGTH_BYTES:begins], rollout=rollout)
        except IntegrityError as error:
            raise IntegrityError(f"{self._objects.uri(stored.key)}: {error}") from error

    def _range(self, key: str, offset: int, size_bytes: int) -> bytes:
        content = bytearray()
        self._objects.read_range(key, offset=offset, size_bytes=size_bytes, consume=content.extend)
        return bytes(content)

    def _prefix(self, batch: str) -> str:
        return f"{self._objects.prefix}runs/{batch_run(batch)}/batches/{batch}/{NAME}"
