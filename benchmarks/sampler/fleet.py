"""What a fleet of samplers asks of the document store, and what the run's own work costs.

Real agents' code (claims, leases, heartbeats, watch of the run, follower of policies, reaper), with
a pace in the place of engines and downloads, and clocks as slow as two cores need; a real embedded
document store. PyMongo's command monitoring counts commands and bytes. "Idle" is an agent whose run
has no task for it, "busy" one with eight groups at a time. What is measured at several sizes gives
the slope, and the slope what ten thousand would take.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.sampler.protocol import run_costs
from benchmarks.sampler.protocol.remote import Remote
from benchmarks.support.result import Result
from tests.servers import running_store

AGENTS = (100, 300, 1000)
DESIGNED = 10_000
PER_PROCESS = 250
COMMANDS_PER_SECOND = 250
"""Of all agents together, in real time: so much fits beside the agents on two cores."""
EXPECTED = 2.5
"""Commands per second of an agent."""
SETTLE_SECONDS, PHASE_SECONDS = 14.0, 24.0
"""Slowed seconds; a phase is as long as a group takes."""
CONNECTIONS, COMMANDS, BYTES = 3, 2, 2048
"""The bars, of an idle agent."""
ESTABLISHED = "01"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller and shorter")
    parser.add_argument("--agents", nargs="+", type=int, help=f"sizes; default {AGENTS}")
    parser.add_argument("--slower", type=float, default=1.0, help="slow the clocks by this, too")
    parser.add_argument("--only", choices=("agents", "run"), help="one of the two halves")
    given = parser.parse_args()
    sizes = given.agents or ((20, 60) if given.quick else AGENTS)
    result = Result("sampler.fleet")
    if given.only != "run":
        measured = [measure(number, slower=given.slower) for number in sorted(sizes)]
        report(result, measured)
    if given.only != "agents":
        run_costs.measure(result, quick=given.quick)
    result.print()


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Rates of one phase."""

    commands: float
    """Per agent and second."""
    bytes: float
    """Per agent and second."""
    connections: float
    """Per agent, the most that were open at a time."""
    by_name: dict[str, tuple[float, float]]
    """Commands and bytes per agent and second, by command and collection."""
    trainer: dict[str, tuple[float, float]]
    """The trainer's commands and bytes per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A fleet of one size."""

    agents: int
    idle: Phase
    busy: Phase


def measure(agents: int, *, slower: float) -> Fleet:
    """Run a number of agents, idle and busy."""
    factor = slower * max(1.0, agents * EXPECTED / COMMANDS_PER_SECOND)
    with running_fleet(agents, factor) as fleet:
        idle = fleet.phase()
        print(f"{agents} agents, clocks {factor:.1f} times slower, idle: {shown(idle)}", flush=True)
        fleet.trainer.ask("busy")
        fleet.sleep(SETTLE_SECONDS)
        busy = fleet.phase()
        print(f"{agents} agents, busy: {shown(busy)}", flush=True)
    return Fleet(agents=agents, idle=idle, busy=busy)


def shown(phase: Phase) -> str:
    """A phase as a line of text."""
    names = ", ".join(
        f"{name} {commands:.2f}/s {size:.0f} B/s"
        for name, (commands, size) in sorted(phase.by_name.items(), key=lambda each: -each[1][0])
    )
    trainer = ", ".join(
        f"{name} {commands:.1f}/s {size / 1000:.1f} kB/s"
        for name, (commands, size) in sorted(phase.trainer.items(), key=lambda each: -each[1][1])
    )
    return (
        f"{phase.commands:.2f} commands/s, {phase.bytes:.0f} B/s, "
        f"{phase.connections:.1f} connections per agent ({names}); the trainer: {trainer}"
    )


@dataclass
class Running:
    """A fleet at work."""

    agents: int
    factor: float
    port: int
    trainer: Remote
    processes: list[Remote]
    connections_before: int

    def sleep(self, seconds: float) -> int:
        """Sleep for slowed seconds; returns the most connections of the agents meanwhile."""
        ends, most = time.monotonic() + seconds * self.factor, 0
        while time.monotonic() < ends:
            time.sleep(0.2)
            most = max(most, connections_to(self.port) - self.connections_before)
        return most

    def phase(self) -> Phase:
        """Measure for a while."""
        before = [process.ask("counts") for process in (*self.processes, self.trainer)]
        most = self.sleep(PHASE_SECONDS)
        after = [process.ask("counts") for process in (*self.processes, self.trainer)]
        rates = [rates_of(*pair) for pair in zip(before, after, strict=True)]
        total: Counter[str] = Counter()
        size: Counter[str] = Counter()
        for each in rates[:-1]:
            total.update({name: commands for name, (commands, _) in each.items()})
            size.update({name: number for name, (_, number) in each.items()})
        return Phase(
            commands=sum(total.values()) / self.agents,
            bytes=sum(size.values()) / self.agents,
            connections=most / self.agents,
            by_name={name: (total[name] / self.agents, size[name] / self.agents) for name in total},
            trainer=rates[-1],
        )


def rates_of(before: Any, after: Any) -> dict[str, tuple[float, float]]:
    """Commands and bytes per slowed second, by name."""
    seconds = after["time"] - before["time"]
    rates = {}
    for name, (commands, size) in after["counts"].items():
        earlier = before["counts"].get(name, (0, 0))
        if commands != earlier[0]:
            rates[name] = ((commands - earlier[0]) / seconds, (size - earlier[1]) / seconds)
    return rates


@contextmanager
def running_fleet(agents: int, factor: float) -> Iterator[Running]:
    """Start a store, a trainer and agents; idle in the end."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "store").mkdir()
        store = stack.enter_context(running_store(folder / "store"))
        port = int(store.uri.rstrip("/").rpartition(":")[2])
        trainer = Remote("trainer", factor=factor, uri=store.uri, agents=agents)
        stack.callback(trainer.end)
        trainer.wait_ready()
        before, processes = connections_to(port), []
        for first in range(0, agents, PER_PROCESS):
            end = min(agents, first + PER_PROCESS)
            where = str(folder / f"agents-{first}")
            process = Remote(
                "agents",
                factor=factor,
                uri=store.uri,
                first=first,
                end=end,
                folder=where,
                relay=True,
            )
            stack.callback(process.end)
            processes.append(process)
        for process in processes:
            process.wait_ready()
        fleet = Running(agents, factor, port, trainer, processes, before)
        fleet.sleep(SETTLE_SECONDS)
        yield fleet


def connections_to(port: int) -> int:
    """Established TCP connections from this machine to a port of it."""
    wanted = f":{port:04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    rows = (line.split() for line in lines)
    return sum(row[2].endswith(wanted) and row[3] == ESTABLISHED for row in rows)


def report(result: Result, fleets: list[Fleet]) -> None:
    """Figures, slopes and bars."""
    for fleet in fleets:
        result.figures[f"{fleet.agents} agents"] = {
            name: {
                "connections": round(phase.connections, 2),
                "commands_per_s": round(phase.commands, 2),
                "bytes_per_s": round(phase.bytes),
            }
            for name, phase in (("idle", fleet.idle), ("busy", fleet.busy))
        }
    largest, smallest = fleets[-1], fleets[0]
    result.at_most("connections of an idle agent", largest.idle.connections, CONNECTIONS)
    result.at_most("commands per second of an idle agent", largest.idle.commands, COMMANDS)
    result.at_most("bytes per second of an idle agent", largest.idle.bytes, BYTES)
    if largest.agents == smallest.agents:
        return
    for name in ("idle", "busy"):
        small, large = getattr(smallest, name), getattr(largest, name)
        grown = large.bytes / small.bytes
        result.at_most(
            f"bytes of a {name} agent, {largest.agents} to {smallest.agents}", grown, 1.5
        )
        result.figures[f"{DESIGNED} agents, {name}"] = {
            "commands_per_s": round(DESIGNED * large.commands),
            "mb_per_s": round(DESIGNED * extrapolated(small, large, smallest, largest) / 1e6, 1),
            "connections": round(DESIGNED * large.connections),
        }


def extrapolated(small: Phase, large: Phase, smallest: Fleet, largest: Fleet) -> float:
    """Bytes per second of one of ``DESIGNED`` agents, by the line through two sizes."""
    slope = (large.bytes - small.bytes) / (largest.agents - smallest.agents)
    return large.bytes + max(0.0, slope) * (DESIGNED - largest.agents)


if __name__ == "__main__":
    main()
