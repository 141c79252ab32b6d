"""Which open episodes the next step waits for under ``offPolicy.onStale: Wait``. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rl_contracts.staleness import is_trainable
from rl_trainer.algorithm.groups import Group


def is_last_chance(oldest_step: int, *, step: int, max_staleness: int) -> bool:
    """Whether the update that makes ``step`` is the last one that may train tokens of a step."""
    return is_trainable(oldest_step, step=step, max_staleness=max_staleness) and not is_trainable(
        oldest_step, step=step + 1, max_staleness=max_staleness
    )


def awaited(
    open_steps: Iterable[int], chosen: Sequence[Group], *, step: int, max_staleness: int
) -> int:
    """Open groups that ``step`` waits for: it would make them too old, and has a place for them.

    A chosen group that a later step may still train gives its place up.

    Args:
        open_steps: oldest policy step of each group that is not read yet.
        chosen: groups of the step, if it were made now.
        step: that the update makes.
        max_staleness: the manifest's ``algorithm.offPolicy.maxStaleness``.
    """
    in_danger = sum(
        is_last_chance(oldest, step=step, max_staleness=max_staleness) for oldest in open_steps
    )
    places = sum(group.is_trainable(step=step + 1, max_staleness=max_staleness) for group in chosen)
    return min(in_danger, places)
