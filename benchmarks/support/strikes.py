"""What strikes a run at random, in which order, and what it cost: the pure parts of ``chaos``."""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["delete", "kill", "stop", "cut", "fill"]
Target = Literal["trainer", "sampler", "store", "bucket", "operator"]
ACTS: tuple[tuple[Kind, Target], ...] = (
    *(("delete", target) for target in ("trainer", "sampler", "store", "bucket", "operator")),
    *(("kill", target) for target in ("trainer", "sampler", "store", "bucket", "operator")),
    *(("stop", target) for target in ("trainer", "sampler", "store", "bucket")),
    *(("cut", target) for target in ("trainer", "sampler", "store", "bucket")),
    ("fill", "trainer"),
    ("fill", "sampler"),
)
"""``delete``: the pod, with its grace. ``kill``: SIGKILL to its processes. ``stop``: SIGSTOP for a
while. ``cut``: its packets are dropped for a while. ``fill``: its ``/tmp`` is full."""
LASTING: tuple[Kind, ...] = ("stop", "cut", "fill")
SHORTEST_SECONDS, LONGEST_SECONDS = 5.0, 45.0
"""Of an act that lasts."""
REST_SECONDS = 60.0
"""From the end of an act to the next: what it cost is counted until then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One strike."""

    kind: Kind
    target: Target
    at: float
    """Seconds after the start."""
    seconds: float
    """How long it lasts; 0 for ``delete`` and ``kill``."""

    @property
    def name(self) -> str:
        """For tables."""
        return f"{self.kind} {self.target}"


@dataclass(frozen=True, slots=True)
class Struck:
    """An act, and the time that the run lost by it."""

    act: Act
    lost_seconds: float


def schedule(*, seed: int, seconds: float) -> list[Act]:
    """The acts of a run: every kind once before any a second time, in an order of the seed.

    Args:
        seed: the same one gives the same acts.
        seconds: of the whole; the last act has its rest within them.
    """
    draw, acts, at = random.Random(seed), list[Act](), 0.0
    round_of: list[tuple[Kind, Target]] = []
    while True:
        if not round_of:
            round_of = draw.sample(ACTS, len(ACTS))
        kind, target = round_of.pop()
        lasts = draw.uniform(SHORTEST_SECONDS, LONGEST_SECONDS) if kind in LASTING else 0.0
        if at + lasts + REST_SECONDS > seconds:
            return acts
        acts.append(Act(kind=kind, target=target, at=at, seconds=lasts))
        at += lasts + REST_SECONDS


def usual_seconds(commits: Sequence[float]) -> float:
    """Median time between two commits; needs two of them at least."""
    return statistics.median(later - earlier for earlier, later in itertools.pairwise(commits))


def lost_seconds(commits: Sequence[float], *, start: float, end: float, usual: float) -> float:
    """Time of a window that went into no step, ≥ 0.

    Args:
        commits: times of all commits, ascending.
        start: of the window: when the act struck.
        end: of the window.
        usual: seconds of an undisturbed step.
    """
    made = sum(start < at <= end for at in commits)
    return max(0.0, end - start - usual * (made + 1))


def table(struck: Sequence[Struck]) -> str:
    """Lost time by kind of fault, as Markdown, the most expensive first."""
    by_name: dict[str, list[float]] = {}
    for each in struck:
        by_name.setdefault(each.act.name, []).append(each.lost_seconds)
    rows = sorted(by_name.items(), key=lambda row: -statistics.fmean(row[1]))
    lines = ["| fault | times | seconds lost, mean | most |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {len(lost)} | {statistics.fmean(lost):.0f} | {max(lost):.0f} |"
        for name, lost in rows
    ]
    return "\n".join(lines)


def false_rewards(
    rewards: Mapping[str, float], again: Mapping[str, float], *, tolerance: float = 1e-9
) -> list[str]:
    """Ids of rollouts whose stored reward is not what scoring them again gives."""
    return sorted(name for name, reward in rewards.items() if abs(again[name] - reward) > tolerance)
