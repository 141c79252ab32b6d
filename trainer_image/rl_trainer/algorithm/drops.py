"""Groups that were lost before training, counted by cause and by length.

Dropped groups are not a fair sample: long episodes are sampled across more updates, so they grow
too old, time out and fail more often than short ones. What is trained is then shorter than what the
policy writes; the histogram of lengths shows by how much.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from rl_contracts.documents.head import RolloutHead
from rl_contracts.documents.step_metrics import Drops
from rl_contracts.documents.task import Cause

WINDOW_STEPS = 10
WANTED: frozenset[Cause] = frozenset({Cause.FILTERED, Cause.OVER})
"""Causes that the manifest asks for: no fault, and not counted in the share."""


def length_bucket(tokens: int) -> str:
    """The power of two, from 16 on, that ``tokens`` does not exceed."""
    return str(max(16, 1 << max(0, tokens - 1).bit_length()))


def dropped(cause: Cause, rollouts: Sequence[RolloutHead] = ()) -> Drops:
    """One group; its rollouts where it had finished."""
    lengths = [rollout.num_generated for rollout in rollouts]
    return Drops(
        by_cause={cause: 1},
        by_length={length_bucket(max(lengths)): 1} if lengths else {},
        rollouts=len(lengths),
        tokens=sum(lengths),
    )


def total(first: Drops, other: Drops) -> Drops:
    """The sum of two counts."""
    return Drops(
        by_cause=dict(Counter(first.by_cause) + Counter(other.by_cause)),
        by_length=dict(Counter(first.by_length) + Counter(other.by_length)),
        rollouts=first.rollouts + other.rollouts,
        tokens=first.tokens + other.tokens,
    )


def faults(drops: Drops) -> int:
    """Groups lost for a cause that the manifest does not ask for."""
    return sum(drops.by_cause.values()) - sum(drops.by_cause.get(cause, 0) for cause in WANTED)


def describe(drops: Drops) -> str:
    """E.g. ``12 stale, 3 lease``."""
    ordered = sorted(drops.by_cause.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{number} {cause}" for cause, number in ordered) or "none"


@dataclass(slots=True)
class Ledger:
    """Drops since the last step, since the last usable group, and over the last steps."""

    step: Drops = field(default_factory=Drops)
    in_a_row: Drops = field(default_factory=Drops)
    filtered: Counter[str] = field(default_factory=Counter)
    """Groups filtered out since the last step, by reason (``credit.no_signal``)."""
    last_reason: str = ""
    _window: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=WINDOW_STEPS))

    def drop(self, cause: Cause, reason: str, rollouts: Sequence[RolloutHead] = ()) -> None:
        """Count a lost group."""
        lost = dropped(cause, rollouts)
        self.step, self.in_a_row = total(self.step, lost), total(self.in_a_row, lost)
        self.last_reason = reason
        if cause is Cause.FILTERED:
            self.filtered[reason] += 1

    def keep(self) -> None:
        """Reset ``in_a_row``: a usable group has come."""
        self.in_a_row = Drops()

    def close_step(self, groups: int) -> tuple[Drops, float]:
        """End a step that trained ``groups`` groups.

        Returns:
            The step's drops, and the share of lost groups over the last ``WINDOW_STEPS`` steps,
            in [0, 1]; groups that the manifest filters out do not count.
        """
        drops, self.step, self.in_a_row = self.step, Drops(), Drops()
        self.filtered = Counter()
        self._window.append((faults(drops), groups))
        lost = sum(faults_of_step for faults_of_step, _ in self._window)
        return drops, lost / (lost + sum(number for _, number in self._window))
