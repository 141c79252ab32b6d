"""Which record stands at a position of the training stream: a pure function, no state.

Sources take turns by a fixed schedule that repeats itself. In it each source's share of every
prefix is off by less than one record (a fair schedule in the sense of Baruah et al., "Proportionate
progress", https://doi.org/10.1007/BF01940883), so no window of the stream is off by two.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm

from rl_trainer.data.permutation import shuffled

MAX_PERIOD = 65536
"""Weights that need a longer schedule are rounded to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A record and how often its source was passed before."""

    source: int
    """Index of the source."""
    epoch: int
    """Passes over the source before this one, ≥ 0."""
    record: int
    """Index of the record in the source."""


class Mixture:
    """The endless stream over several sources."""

    def __init__(
        self,
        *,
        names: Sequence[str],
        weights: Sequence[float],
        sizes: Sequence[int],
        seed: int,
        shuffle: bool = True,
    ) -> None:
        """Make the schedule.

        Args:
            names: of the sources; each shuffles its records by its own name.
            weights: shares of the stream, > 0, in any unit.
            sizes: records of each source, ≥ 1.
            seed: of all shuffles.
            shuffle: another order in each pass; false: the source's own.
        """
        self._names, self._sizes = tuple(names), tuple(sizes)
        self._seed, self._shuffle = seed, shuffle
        self._quotas = quotas(weights)
        self._schedule = schedule(self._quotas)
        self._turns = [
            array("I", (at for at, turn in enumerate(self._schedule) if turn == source))
            for source in range(len(self._quotas))
        ]

    def at(self, position: int) -> Place:
        """The record at ``position`` (≥ 0).

        Every pass over a source holds each of its records once.
        """
        source = self._schedule[position % len(self._schedule)]
        epoch, index = divmod(self.drawn(source, before=position), self._sizes[source])
        if self._shuffle:
            key = f"{self._seed}/{self._names[source]}/{epoch}"
            index = shuffled(index, size=self._sizes[source], key=key)
        return Place(source=source, epoch=epoch, record=index)

    def drawn(self, source: int, *, before: int) -> int:
        """How many records of a source stand before a position."""
        period, rest = divmod(before, len(self._schedule))
        return period * self._quotas[source] + bisect_left(self._turns[source], rest)


def quotas(weights: Sequence[float]) -> tuple[int, ...]:
    """Turns of each source in one period of the schedule, each ≥ 1.

    They are exactly proportional to the weights, read as decimals, where the period is then at most
    ``MAX_PERIOD``; else they are rounded to that by largest remainder.
    """
    exact = [Fraction(str(weight)) for weight in weights]
    scale = lcm(*(share.denominator for share in exact))
    whole = [int(share * scale) for share in exact]
    common = gcd(*whole)
    whole = [count // common for count in whole]
    total = sum(whole)
    if total <= MAX_PERIOD:
        return tuple(whole)
    shares = [Fraction(count * MAX_PERIOD, total) for count in whole]
    rounded = [max(1, int(share)) for share in shares]
    by_rest = sorted(range(len(shares)), key=lambda at: int(shares[at]) - shares[at])
    for at in by_rest[: max(0, MAX_PERIOD - sum(rounded))]:
        rounded[at] += 1
    return tuple(rounded)


def schedule(turns: Sequence[int]) -> bytes:
    """Sources in the order of their turns, ``turns[i]`` of source ``i`` among ``sum(turns)``.

    Turn ``j`` of a source with share ``w`` falls between ``j / w`` and ``(j + 1) / w``, rounded
    outwards. Earliest deadline first meets all of these bounds.
    """
    period = sum(turns)
    done = [0] * len(turns)
    order = bytearray()
    for slot in range(period):
        source = min(
            (
                at
                for at, quota in enumerate(turns)
                if done[at] < quota and done[at] * period // quota <= slot
            ),
            key=lambda at: (-(-(done[at] + 1) * period // turns[at]), at),
        )
        done[source] += 1
        order.append(source)
    return bytes(order)
