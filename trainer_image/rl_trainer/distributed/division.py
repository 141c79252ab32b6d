"""Work divided among ranks. Pure: every rank computes the same division by itself."""

from __future__ import annotations

from collections.abc import Sequence


def shares(sizes: Sequence[int], *, parts: int) -> list[list[int]]:
    """Distribute indices so that the largest sum of sizes is small.

    The largest goes first, always to the part that has least (LPT, Graham 1969: at most 4/3 of the
    best).

    Args:
        sizes: of each index, ≥ 0.
        parts: ≥ 1.

    Returns:
        Ascending indices of each part; some parts are empty where there are fewer indices.
    """
    members: list[list[int]] = [[] for _ in range(parts)]
    sums = [0] * parts
    for index in sorted(range(len(sizes)), key=lambda number: (-sizes[number], number)):
        part = min(range(parts), key=lambda number: (sums[number], number))
        members[part].append(index)
        sums[part] += sizes[index]
    return [sorted(indices) for indices in members]
