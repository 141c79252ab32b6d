"""Every contract test is in one of the lanes that run side by side."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_each_contract_test_is_in_exactly_one_lane() -> None:
    commands = re.findall(
        r"^\t\$\(VENV\)/pytest (.*tests/contract/.*)$", (ROOT / "Makefile").read_text(), re.M
    )
    folders = [ROOT / word for command in commands for word in command.split() if "/" in word]
    assert all(folder.is_dir() for folder in folders)
    for test in (ROOT / "tests" / "contract").rglob("test_*.py"):
        lanes = [folder for folder in folders if folder in test.parents]
        assert len(lanes) == 1, f"{test.relative_to(ROOT)} is in {len(lanes)} lanes of the Makefile"
