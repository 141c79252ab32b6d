"""Processor time of a side's processes, which other load on the machine changes little."""

from __future__ import annotations

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
OWN = "benchmark"
"""This process: users, trainers, samplers, and on its side the script."""


def spent() -> dict[str, float]:
    """Processor seconds so far of this process and of its children, by name."""
    seconds = {OWN: _seconds(Path("/proc/self"))}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if _parent(folder) == os.getpid():
                name = _name(folder)
                seconds[name] = seconds.get(name, 0.0) + _seconds(folder)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
    return seconds


def between(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Processor seconds between two calls of ``spent``, by process and in total."""
    moved = {key: round(at - before.get(key, 0.0), 1) for key, at in after.items()}
    return {**moved, "all": round(sum(moved.values()), 1)}


def _fields(folder: Path) -> list[str]:
    return (folder / "stat").read_text().rpartition(")")[2].split()


def _parent(folder: Path) -> int:
    return int(_fields(folder)[1])


def _seconds(folder: Path) -> float:
    user, system = _fields(folder)[11:13]
    return (int(user) + int(system)) / TICKS


def _name(folder: Path) -> str:
    """The program, or of one that is many: which of them."""
    words = (folder / "cmdline").read_text().split("\0")
    program = Path(words[0]).name
    if program.startswith("kubernetes"):
        return words[1]
    return "operator" if "-m" in words[:4] else program.partition("-")[0]
