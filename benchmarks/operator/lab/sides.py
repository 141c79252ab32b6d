"""The sides that are compared: a script, our operator, a plain one; a control plane for each."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.operator.lab import floor, jobs, processor, writes
from benchmarks.operator.lab.api import Api, Manifest
from benchmarks.operator.lab.control_plane import control_plane
from benchmarks.operator.lab.fleet import Fleet
from benchmarks.operator.lab.idiomatic_operator import RECIPE
from benchmarks.operator.lab.process import Measured, running
from tests.kube.apiserver import ApiServer
from tests.waiting import until

OURS = "benchmarks.operator.lab.recorded_operator"
PLAIN = "benchmarks.operator.lab.idiomatic_operator"
SETTLED_SECONDS, UNSETTLED_SECONDS = 30.0, 600.0
LOOKED = 'rl_operator_reconciles_total{{kind="{}",result="ok"}}'


@dataclass
class Side:
    """What an operator did, and its costs."""

    times: jobs.Times
    processor_s: dict[str, float] = field(default_factory=dict)
    """By process, and of all, from the first request until all jobs were Ready."""
    writes_per_job: float = 0.0
    writes_by_kind: dict[str, float] = field(default_factory=dict)
    """Successful writes of everybody for each job, by verb and resource."""
    memory_mb: tuple[float, float] = (0.0, 0.0)
    """At the end and at its highest."""
    restarts: int = 0
    """Of the operator, each after its process had ended."""
    quiet: dict[str, Any] = field(default_factory=dict)
    cold_start_s: float = 0.0

    @property
    def rested(self) -> bool:
        """Whether it was also measured at rest, after all jobs were Ready."""
        return bool(self.quiet)

    def common_figures(self) -> dict[str, Any]:
        """Figures that every side has, also one that did not rest."""
        return {**self.times.figures(), "processor_s": self.processor_s}

    def figures(self) -> dict[str, Any]:
        """All figures of the side, for the benchmark's result."""
        if not self.rested:
            return {
                **self.common_figures(),
                "rss_mb": self.memory_mb,
                "restarts": self.restarts,
            }
        return {
            **self.common_figures(),
            "writes_per_job": self.writes_per_job,
            "writes_by_kind": self.writes_by_kind,
            "rss_mb": self.memory_mb,
            "restarts": self.restarts,
            "quiet": self.quiet,
            "cold_start_s": self.cold_start_s,
        }


def record(folder: Path) -> floor.Recipe:
    """Record what the operator creates for a job."""
    with control_plane(folder, nodes=2) as server:
        api, files = Api(server), folder / "recorded"
        with Fleet(api, files).at_work(), running(server, folder, module=OURS, recorded=files):
            jobs.make_namespaces(api, [floor.RECORDED])
            seen: list[Manifest] = []
            if not jobs.bring_up(api, [floor.RECORDED], on_change=seen.append).whole:
                raise TimeoutError("the job whose objects are to be recorded is not Ready")
            # A new job has a status by default, which nobody has written.
            first = next(job["status"] for job in seen if "conditions" in job["status"])
            return floor.Recipe.recorded(api, first)


def of_floor(
    folder: Path, recipe: floor.Recipe, count: int, *, seconds: float, over_seconds: float
) -> Side:
    """The script's times and what they cost."""
    with control_plane(folder) as server:
        api, wanted = Api(server), jobs.names_of(count, "bare")
        jobs.make_namespaces(api, wanted)
        before = processor.spent()
        times = floor.bring_up(
            api, recipe, folder / "recorded", wanted, seconds=seconds, over_seconds=over_seconds
        )
        side = Side(times=times, processor_s=processor.between(before, times.spent))
    print(f"floor, {count} jobs: {side.common_figures()}", flush=True)
    return side


def of_operator(
    folder: Path,
    count: int,
    *,
    module: str,
    quiet_seconds: float,
    seconds: float = jobs.LIMIT_SECONDS,
    over_seconds: float = 0.0,
    environment: dict[str, str] | None = None,
    rests: bool = True,
) -> Side:
    """An operator's times and what it costs; also at rest, and how ours starts among so many."""
    with control_plane(folder) as server:
        api, files, wanted = Api(server), folder / "recorded", jobs.names_of(count, "ours")
        with Fleet(api, files).at_work():
            with running(
                server, folder, module=module, recorded=files, environment=environment
            ) as operator:
                jobs.make_namespaces(api, wanted)
                before, cost = writes.counted(api), processor.spent()
                side = Side(
                    times=jobs.bring_up(api, wanted, seconds=seconds, over_seconds=over_seconds)
                )
                side.processor_s = processor.between(cost, side.times.spent)
                print(f"{module}, {count} jobs: {side.common_figures()}", flush=True)
                if not (side.times.whole and rests):
                    side.memory_mb, side.restarts = operator.memory_mb(), operator.restarts
                    return side
                settle(api)
                moved = writes.since(before, writes.counted(api))
                side.writes_per_job = writes.of_operator(moved, jobs=count)
                side.writes_by_kind = {key: round(n / count, 2) for key, n in moved.items()}
                side.quiet = quietness(api, operator, seconds=quiet_seconds)
                side.memory_mb, side.restarts = operator.memory_mb(), operator.restarts
            if module == OURS:
                side.cold_start_s = cold_start(server, folder, files, count)
    print(side.figures(), flush=True)
    return side


def settle(api: Api) -> None:
    """Wait until nothing has been written for a while, or until that has taken too long."""
    before, since = writes.counted(api), time.monotonic()
    deadline = since + UNSETTLED_SECONDS
    while time.monotonic() - since < SETTLED_SECONDS and time.monotonic() < deadline:
        time.sleep(1)
        now = writes.counted(api)
        if writes.since(before, now):
            before, since = now, time.monotonic()


def quietness(api: Api, operator: Measured, *, seconds: float) -> dict[str, Any]:
    """What is written in a while of rest, Leases left out, and what it costs."""
    before, cpu = writes.counted(api), operator.cpu_seconds()
    time.sleep(seconds)
    share = (operator.cpu_seconds() - cpu) / seconds
    moved = writes.since(before, writes.counted(api))
    return {"seconds": seconds, "writes": moved, "cpu_share": round(share, 3)}


SCRAPED_SECONDS = 0.5
"""Between two scrapes: with a line for each of 5,000 jobs each costs the operator much."""


def cold_start(server: ApiServer, folder: Path, files: Path, count: int) -> float:
    """Seconds from the start of a process to its having reconciled every object."""
    started = time.monotonic()
    with running(server, folder, module=OURS, recorded=files) as operator:

        def all_reconciled() -> bool:
            samples = operator.samples()
            done = (
                samples.get(LOOKED.format(kind), 0) >= count for kind in ("RLJob", "SamplerPool")
            )
            return all(done) and not samples["rl_operator_queue_length"]

        until(all_reconciled, what="all to be reconciled", seconds=600, interval=SCRAPED_SECONDS)
        return round(time.monotonic() - started, 1)


def of_plain(folder: Path, recipe: floor.Recipe, count: int, *, quiet_seconds: float) -> Side:
    """The plain operator's times."""
    file = folder.with_suffix(".json")
    recipe.save(file)
    return of_operator(
        folder, count, module=PLAIN, quiet_seconds=quiet_seconds, environment={RECIPE: str(file)}
    )
