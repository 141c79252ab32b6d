"""Which sequences are attended to in one call: those whose padding costs less than a call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

WASTE = 2.0
"""Padded work is at most this many times the work that is asked for."""

FREE_SCORES = 4096
"""So many scores (query times key, of one head) cost no more than the call that they save."""

MOST_SCORES = 1 << 22
"""Of one call, padding included: its mask takes 4 bytes for each."""

MOST_SLOTS = 1 << 14
"""Keys gathered by one call, padding included, unless one sequence alone has more."""


def batches(queries: Sequence[int], keys: Sequence[int]) -> list[list[int]] | None:
    """Divide sequences into calls.

    Args:
        queries: how many queries each sequence has, at least one.
        keys: how many keys each has.

    Returns:
        Sequences of each call, in their order where one call is enough; ``None`` where a sequence
        is too long for a mask of its own.
    """
    if any(q * k > MOST_SCORES for q, k in zip(queries, keys, strict=True)):
        return None
    everything = list(range(len(queries)))
    if _fits(everything, queries, keys):
        return [everything]
    found: list[list[int]] = []
    for one in sorted(everything, key=lambda i: (queries[i], keys[i])):
        if found and _fits([*found[-1], one], queries, keys):
            found[-1].append(one)
        else:
            found.append([one])
    return found


def _fits(members: Sequence[int], queries: Sequence[int], keys: Sequence[int]) -> bool:
    if len(members) == 1:
        return True
    slots = len(members) * _most(keys, members)
    scores = slots * _most(queries, members)
    if slots > MOST_SLOTS or scores > MOST_SCORES:
        return False
    asked = sum(queries[i] * keys[i] for i in members)
    return scores <= max(WASTE * asked, FREE_SCORES)


def _most(sizes: Sequence[int], members: Iterable[int]) -> int:
    return max(sizes[i] for i in members)
