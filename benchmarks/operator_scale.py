"""Many RLJobs at once: until all are Ready, beside a script that only makes the same objects.

Real etcd, API server, controllers and scheduler; the nodes are kwok's. Store reads are served by a
record (``benchmarks/scale/recorded.py``) and trainers' pods are made by the benchmark, for both
sides alike. Each side has a control plane of its own, made anew. Where the time that a side has is
over before all jobs are Ready, the sides are compared at as many as both have made Ready, with the
slope: what the machine holds. ``--alone`` leaves the script out, as for ``--jobs 5000 --alone
--limit-seconds 1500``, of which time and slope are asked alone.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.result import Result
from benchmarks.scale import sides
from benchmarks.scale.sides import Side

COUNTS, QUICK = (100, 1000), (20,)
QUIET_SECONDS, QUICK_QUIET_SECONDS = 120.0, 15.0
LIMIT_SECONDS = 300.0
"""For each side to make its jobs Ready."""
RATIO, ADDED_P99_SECONDS, RSS_MB, WRITES, COLD_SECONDS = 1.3, 1.0, 400.0, 20.0, 30.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer jobs")
    parser.add_argument("--jobs", type=int, action="append", help="how many at once; repeatable")
    parser.add_argument(
        "--limit-seconds", type=float, default=LIMIT_SECONDS, help="for each side's jobs"
    )
    parser.add_argument("--alone", action="store_true", help="no script beside it, no ratios")
    given = parser.parse_args()
    result = Result("operator_scale")
    quiet = QUICK_QUIET_SECONDS if given.quick else QUIET_SECONDS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recipe = None if given.alone else sides.record(folder / "recording")
        for count in given.jobs or (QUICK if given.quick else COUNTS):
            limit = given.limit_seconds
            bare = None
            if recipe is not None:
                bare = sides.of_floor(folder / f"floor-{count}", recipe, count, seconds=limit)
            ours = sides.of_operator(
                folder / f"ours-{count}", count, module=sides.OURS, quiet_seconds=quiet,
                seconds=limit,
            )  # fmt: skip
            tell(result, count, bare, ours)
    result.print()


def tell(result: Result, count: int, bare: Side | None, ours: Side) -> None:
    """Put figures and bars of one size into the result."""
    found, at = ours.figures(), f"{count} jobs: "
    result.figures[f"{count} jobs"] = {"ours": found}
    if bare is not None:
        compare(result, count, bare, ours)
    result.at_most(f"{at}highest RSS, MB", ours.memory_mb[1], RSS_MB)
    if not ours.times.whole:
        return
    result.at_most(f"{at}writes per job until it rests", ours.writes_per_job, WRITES)
    result.at_most(f"{at}writes at rest but Leases", sum(ours.quiet["writes"].values()), 0)
    result.at_most(f"{at}cold start to synced, s", ours.cold_start_s, COLD_SECONDS)


def compare(result: Result, count: int, bare: Side, ours: Side) -> None:
    """Hold the operator's side against the script's."""
    floor, at, figures = bare.told(), f"{count} jobs: ", result.figures[f"{count} jobs"]
    figures["floor"] = floor
    both = min(len(bare.times.ready), len(ours.times.ready))
    if both:
        ratio = ours.times.reached_s(both) / bare.times.reached_s(both)
        result.at_most(f"{at}{both} Ready, to the floor", ratio, RATIO)
    if bare.times.whole and ours.times.whole:
        cost = ours.processor_s["all"] / bare.processor_s["all"]
        figures["processor_ratio"] = round(cost, 3)
        found = ours.times.figures()
        for since in ("create", "asked"):
            p99 = f"{since}_to_ready_p99_s"
            added = found[p99] - floor[p99]
            result.at_most(f"{at}{since} to Ready P99 added, s", added, ADDED_P99_SECONDS)


if __name__ == "__main__":
    main()
