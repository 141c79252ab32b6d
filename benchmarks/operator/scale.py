"""Many RLJobs at once: until all are Ready, beside a script that only makes the same objects.

Real etcd, API server, controllers and scheduler; the nodes are kwok's. Store reads are served by a
record (``lab/recorded.py``) and trainers' pods are made by the benchmark, for both
sides alike. Each side has a new control plane of its own. Where the time that a side has is
over before all jobs are Ready, the sides are compared at as many as both have made Ready, with the
slope: what the machine holds. Its speed changes by a third from one side to the next: several pairs
tell more than one. ``--alone`` leaves the script out, as for ``--jobs 5000 --alone --limit-seconds
1500``, of which time and slope are asked alone. ``--over-seconds 60`` has the jobs come one after
the other, so that the cores are not full: what is added then is time that nobody works.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.operator.lab import sides
from benchmarks.operator.lab.floor import Recipe
from benchmarks.operator.lab.sides import Side
from benchmarks.support.result import Result

COUNTS, QUICK = (100, 1000), (20,)
QUIET_SECONDS, QUICK_QUIET_SECONDS = 120.0, 15.0
LIMIT_SECONDS = 300.0
"""For each side to make its jobs Ready."""
RATIO, ADDED_P99_SECONDS, WRITES, COLD_SECONDS = 1.3, 3.0, 20.0, 30.0
RSS_MB, MANY_RSS_MB, MANY = 256.0, 400.0, 1000
"""Highest memory of the operator with up to ``MANY`` jobs, and with more."""
ADDED = ("create_to_ready_p99_s", "asked_to_ready_p99_s")
"""Times of which the difference counts: from each request, and from the first of all."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer jobs")
    parser.add_argument("--jobs", type=int, action="append", help="how many at once; repeatable")
    parser.add_argument(
        "--limit-seconds", type=float, default=LIMIT_SECONDS, help="for each side's jobs"
    )
    parser.add_argument(
        "--alone",
        action="store_true",
        help="run only the operator, without the bare script and ratios",
    )
    parser.add_argument(
        "--over-seconds", type=float, default=0.0, help="in which jobs are asked for, evenly"
    )
    parser.add_argument("--pairs", type=int, default=1, help="of sides, for their medians")
    given = parser.parse_args()
    result = Result("operator.scale")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recipe = None if given.alone else sides.record(folder / "recording")
        bench = Bench(
            folder,
            recipe,
            quiet_seconds=QUICK_QUIET_SECONDS if given.quick else QUIET_SECONDS,
            limit_seconds=given.limit_seconds,
            over_seconds=given.over_seconds,
        )
        for count in given.jobs or (QUICK if given.quick else COUNTS):
            pairs = [bench.pair(count, number) for number in range(given.pairs)]
            over = f" over {given.over_seconds:g} s" if given.over_seconds else ""
            report(
                result,
                f"{count} jobs{over}",
                pairs,
                rss_mb=RSS_MB if count <= MANY else MANY_RSS_MB,
            )
    result.print()


@dataclass
class Pair:
    """Measure both sides in turn."""

    ours: Side
    bare: Side | None

    def ratio(self) -> float | None:
        """Of the times until as many were Ready as both sides have made so."""
        both = min(len(self.ours.times.ready), len(self.bare.times.ready)) if self.bare else 0
        if not both or self.bare is None:
            return None
        return self.ours.times.reached_s(both) / self.bare.times.reached_s(both)

    def added(self) -> dict[str, float]:
        """What the operator adds to the script's times, in seconds, and the ratio of the costs."""
        if self.bare is None or not (self.ours.times.whole and self.bare.times.whole):
            return {}
        ours, bare = self.ours.times.figures(), self.bare.times.figures()
        difference = {name: round(ours[name] - bare[name], 2) for name in ADDED}
        cost = self.ours.processor_s["all"] / self.bare.processor_s["all"]
        return difference | {"processor_ratio": round(cost, 3)}


@dataclass(frozen=True)
class Bench:
    """What all pairs have in common."""

    folder: Path
    recipe: Recipe | None
    quiet_seconds: float
    limit_seconds: float
    over_seconds: float

    def pair(self, count: int, number: int) -> Pair:
        """Both sides; who is first alternates, and the first pair is looked at when it rests."""
        bare = self._bare(count, number) if number % 2 == 0 else None
        ours = sides.of_operator(
            self.folder / f"ours-{count}-{number}",
            count,
            module=sides.OURS,
            quiet_seconds=self.quiet_seconds,
            seconds=self.limit_seconds,
            over_seconds=self.over_seconds,
            rests=number == 0,
        )
        return Pair(ours, bare if number % 2 == 0 else self._bare(count, number))

    def _bare(self, count: int, number: int) -> Side | None:
        if self.recipe is None:
            return None
        folder = self.folder / f"floor-{count}-{number}"
        return sides.of_floor(
            folder,
            self.recipe,
            count,
            seconds=self.limit_seconds,
            over_seconds=self.over_seconds,
        )


def report(result: Result, what: str, pairs: list[Pair], *, rss_mb: float) -> None:
    """Add figures and limits of a size to the result: medians, and our worst values."""
    at = f"{what}: "
    result.figures[what] = [
        {
            "ours": pair.ours.figures(),
            **({"floor": pair.bare.common_figures(), **pair.added()} if pair.bare else {}),
        }
        for pair in pairs
    ]
    ratios = [ratio for pair in pairs if (ratio := pair.ratio()) is not None]
    if ratios:
        result.at_most(f"{at}time until Ready, to the floor", statistics.median(ratios), RATIO)
    added = [difference for pair in pairs if (difference := pair.added())]
    for time in ADDED if added else ():
        middle = statistics.median(difference[time] for difference in added)
        result.at_most(f"{at}added to {time}", middle, ADDED_P99_SECONDS)
    ours = [pair.ours for pair in pairs]
    result.at_most(f"{at}highest RSS, MB", max(our.memory_mb[1] for our in ours), rss_mb)
    for side in filter(lambda side: side.rested, ours):
        result.at_most(f"{at}writes per job until it rests", side.writes_per_job, WRITES)
        result.at_most(f"{at}writes at rest but Leases", sum(side.quiet["writes"].values()), 0)
        result.at_most(f"{at}cold start to synced, s", side.cold_start_s, COLD_SECONDS)


if __name__ == "__main__":
    main()
