"""Every test file of a tier that runs in lanes is in one of them, and in no other."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LANES = re.compile(r"\$\(addprefix (unit|contract)-,([a-z ]+)\)")
IGNORED = "--ignore="


def lanes(tier: str) -> list[str]:
    """The tier's lanes, as its target names them."""
    named = {
        match[1]: match[2].split() for match in LANES.finditer((ROOT / "Makefile").read_text())
    }
    return [f"{tier}-{name}" for name in named[tier]]


def files(lane: str) -> set[Path]:
    """The test files that a lane runs."""
    command = ["make", "--no-print-directory", "-n", lane]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    words = shlex.split(printed)
    ignored = [ROOT / word.removeprefix(IGNORED) for word in words if word.startswith(IGNORED)]
    asked = [ROOT / word for word in words if word.startswith("tests/")]
    assert all(folder.is_dir() for folder in [*asked, *ignored]), printed
    tests = {path for folder in asked for path in folder.rglob("test_*.py")}
    return {path for path in tests if not any(path.is_relative_to(folder) for folder in ignored)}


@pytest.mark.parametrize("tier", ["unit", "contract"])
def test_each_file_is_in_exactly_one_lane(tier: str) -> None:
    times = Counter(path for lane in lanes(tier) for path in files(lane))
    assert set((ROOT / "tests" / tier).rglob("test_*.py")) - times.keys() == set()
    assert {path for path, count in times.items() if count > 1} == set()
