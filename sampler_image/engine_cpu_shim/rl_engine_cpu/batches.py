"""Groups the sequences of a forward to calls, where padding costs less than another call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MAX_PADDING_FACTOR = 2.0
"""Padded work is at most this many times the work without padding."""

FREE_SCORES = 4096
"""So many scores (queries times keys, of a head) cost no more than the call that they save."""

MAX_SCORES = 1 << 22
"""Of a call, with padding; its mask takes 4 bytes for each score."""

MAX_SLOTS = 1 << 14
"""Keys that a call gathers, with padding, unless a single sequence has more."""


def batches(queries: Sequence[int], keys: Sequence[int]) -> list[list[int]] | None:
    """Divide sequences into calls.

    Args:
        queries: number of queries of each sequence, ≥ 1.
        keys: number of keys of each sequence.

    Returns:
        Indices of the sequences of each call, in order where a single call is enough; None where a
        sequence is too long for a mask.
    """
    if any(q * k > MAX_SCORES for q, k in zip(queries, keys, strict=True)):
        return None
    everything = list(range(len(queries)))
    if _fits(everything, queries, keys):
        return [everything]
    calls: list[list[int]] = []
    for sequence in sorted(everything, key=lambda i: (queries[i], keys[i])):
        if calls and _fits([*calls[-1], sequence], queries, keys):
            calls[-1].append(sequence)
        else:
            calls.append([sequence])
    return calls


def _fits(members: Sequence[int], queries: Sequence[int], keys: Sequence[int]) -> bool:
    if len(members) == 1:
        return True
    slots = len(members) * _most(keys, members)
    scores = slots * _most(queries, members)
    if slots > MAX_SLOTS or scores > MAX_SCORES:
        return False
    asked = sum(queries[i] * keys[i] for i in members)
    return scores <= max(MAX_PADDING_FACTOR * asked, FREE_SCORES)


def _most(sizes: Sequence[int], members: Iterable[int]) -> int:
    return max(sizes[i] for i in members)
