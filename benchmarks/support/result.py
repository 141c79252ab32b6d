"""The common output format of all benchmarks."""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def machine() -> str:
    """Processor, its cores and the load of others, in words."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    return f"{names[0] if names else platform.machine()}, {cores} cores, load {load:.1f} at start"


@dataclass
class Result:
    """Figures of a benchmark run, and the limits that they are compared with."""

    benchmark: str
    machine: str = field(default_factory=machine)
    figures: dict[str, Any] = field(default_factory=dict)
    bars: dict[str, dict[str, Any]] = field(default_factory=dict)

    def at_least(self, what: str, value: float, bar: float) -> None:
        """Hold a figure against a lower bound."""
        self._hold(what, value, bar, met=value >= bar)

    def at_most(self, what: str, value: float, bar: float) -> None:
        """Hold a figure against an upper bound."""
        self._hold(what, value, bar, met=value <= bar)

    def _hold(self, what: str, value: float, bar: float, *, met: bool) -> None:
        self.bars[what] = {"value": round(value, 4), "bar": bar, "met": met}

    def print(self) -> None:
        """Print the last line of the benchmark's output."""
        print(
            json.dumps(
                {
                    "benchmark": self.benchmark,
                    "machine": self.machine,
                    "figures": self.figures,
                    "bars": self.bars,
                }
            )
        )


def is_quick(description: str | None) -> bool:
    """Parse the command line; whether ``--quick`` was asked for."""
    return bool(_parser(description).parse_args().quick)


def chosen_cases(description: str | None, cases: Iterable[str]) -> tuple[list[str], bool]:
    """Parse the command line: which cases to run, and whether ``--quick``.

    Without ``--cases`` all, or with ``--quick`` the first.
    """
    parser, known = _parser(description), list(cases)
    parser.add_argument("--cases", nargs="+", choices=known, help="only these")
    given = parser.parse_args()
    return list(given.cases or (known[:1] if given.quick else known)), bool(given.quick)


def _parser(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="smaller and shorter")
    return parser


def seconds(
    work: Callable[[], object],
    *,
    repeat: int = 3,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """The shortest of several times, in seconds: what disturbs only ever adds.

    With ``time.process_time`` the processor's seconds over all threads: on a machine that others
    use, too, these tell more.
    """
    lines = []
    for _ in range(repeat):
        started = clock()
        work()
        lines.append(clock() - started)
    return min(lines)
