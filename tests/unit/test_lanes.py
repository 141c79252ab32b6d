"""The lanes in which `make` runs a tier side by side: together they have each test once."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def lanes(tier: str) -> list[tuple[list[Path], list[Path]]]:
    """Paths of each lane, and those that it leaves out."""
    without_make = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    command = ["make", "--dry-run", tier]
    printed = subprocess.run(
        command, cwd=ROOT, env=without_make, check=True, capture_output=True, text=True
    ).stdout
    read = []
    for line in printed.splitlines():
        words = shlex.split(line)
        if words and words[0].endswith("/pytest"):
            ignored = [ROOT / word.removeprefix("--ignore=") for word in words if "=" in word]
            read.append(([ROOT / word for word in words if word.startswith("tests/")], ignored))
    return read


def within(path: Path, folders: list[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


@pytest.mark.parametrize("tier", ["unit", "contract"])
def test_each_test_is_in_one_lane(tier: str) -> None:
    each = lanes(tier)
    for path in (ROOT / "tests" / tier).rglob("test_*.py"):
        having = [
            paths for paths, ignored in each if within(path, paths) and not within(path, ignored)
        ]
        assert len(having) == 1, path
