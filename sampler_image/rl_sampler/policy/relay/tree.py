"""Who asks whom: the samplers of a pool as a tree, the first of which takes from the bucket. Pure.

So the bucket sends a version once, and each pod passes it on to a few others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

FANOUT = 4


@dataclass(frozen=True, slots=True)
class Peer:
    """Another sampler of the pool."""

    sampler: str
    """Its registration's id."""
    url: str


def ancestors(own: str, pool: Sequence[Peer]) -> list[Peer]:
    """Whom to ask, the nearest first; none for the one that takes from the bucket.

    Args:
        own: this sampler's id; it must be in the pool.
        pool: the living samplers, in any order.
    """
    ordered = sorted(pool, key=lambda one: one.sampler)
    place = next(index for index, one in enumerate(ordered) if one.sampler == own)
    found = []
    while place:
        place = (place - 1) // FANOUT
        found.append(ordered[place])
    return found


def for_joiner(own: str, pool: Sequence[Peer]) -> list[Peer]:
    """Whom one that is not registered yet asks: a few, others for each joiner."""

    def drawn(one: Peer) -> str:
        return hashlib.sha256(f"{own}/{one.sampler}".encode()).hexdigest()

    return sorted(pool, key=drawn)[:FANOUT]
