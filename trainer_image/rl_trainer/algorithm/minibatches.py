"""Which sequences each update of a training step takes. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence


def updates(
    groups: Sequence[str], *, prompts_per_update: int | None, passes: int, seed: int, step: int
) -> list[list[int]]:
    """Split a step's sequences into updates of whole groups.

    Args:
        groups: group of each sequence; those of a group are adjacent.
        prompts_per_update: groups in an update; None takes all of them. The last update of a pass
            has what is left.
        passes: times that each sequence is trained in the step, ≥ 1.
        seed: of the run.
        step: the training step.

    Returns:
        Indices of the sequences of each update, in their order. Where a pass has several updates
        its groups are shuffled, differently in each pass and step.
    """
    names = list(dict.fromkeys(groups))
    size = prompts_per_update or len(names)
    planned = []
    for pass_number in range(passes):
        order = list(names)
        if size < len(order):
            random.Random(f"{seed}/{step}/{pass_number}").shuffle(order)
        for first in range(0, len(order), size):
            chosen = set(order[first : first + size])
            planned.append([index for index, group in enumerate(groups) if group in chosen])
    return planned
