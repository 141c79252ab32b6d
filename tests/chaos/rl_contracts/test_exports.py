"""Exported episodes are read by the packages that define their formats, as published on PyPI."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.documents.rollout import RolloutError
from rl_contracts.trajectories.atif import trajectory
from rl_contracts.trajectories.episode import Episode
from rl_contracts.trajectories.verifiers_trace import trace
from tests.samples.documents import a_rollout
from tests.unit.rl_contracts.trajectories.test_trajectories import (
    CALL,
    TASK,
    TRAINED,
    a_turn,
    with_tools,
)

ANOTHER_CONTEXT = [a_turn((0, 2), (2, 4), "a", calls=[CALL]), a_turn((4, 5), (5, 6), "b")]
EPISODES = [
    TRAINED,
    Episode(rollout=a_rollout(TASK), task=TASK),
    Episode(rollout=with_tools(sequence_starts=[4], turns=ANOTHER_CONTEXT), task=TASK),
    Episode(rollout=with_tools(error=RolloutError(kind="infrastructure", message="x"))),
]
READ_ATIF = """
import sys
from harbor.models.trajectories import Trajectory
for line in sys.stdin:
    made = Trajectory.model_validate_json(line)
    print(sum(len(step.metrics.completion_token_ids) for step in made.steps if step.metrics))
"""
READ_TRACE = """
import sys
from verifiers.v1.trace import WireTrace
for line in sys.stdin:
    made = WireTrace.model_validate_json(line)
    print(sum(sum(branch.sampled_mask) for branch in made.branches))
"""


def read(script: str, records: list[dict[str, Any]], *, python: Path, path: str = "") -> list[int]:
    """Numbers that a script prints for these records."""
    done = subprocess.run(
        [python, "-c", script],
        input="\n".join(map(json.dumps, records)),
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


def generated() -> list[int]:
    return [episode.rollout.num_generated for episode in EPISODES]


def test_harbor_reads_our_trajectories(tmp_path: Path) -> None:
    """Its models of trajectories need only pydantic; the rest of it needs a newer Python."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(tmp_path)]
    subprocess.run([*pip, "--no-deps", "--ignore-requires-python", "harbor==0.26.0"], check=True)
    records = [trajectory(episode, producer="1") for episode in EPISODES]
    python = Path(sys.executable)
    assert read(READ_ATIF, records, python=python, path=str(tmp_path)) == generated()


@pytest.mark.timeout(1800)
def test_verifiers_reads_our_traces(tmp_path: Path) -> None:
    """Some hundred packages: an environment of its own."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path], check=True)
    python = tmp_path / "bin/python"
    install = [str(python), "-m", "pip", "install", "--quiet", "verifiers==0.4.0"]
    subprocess.run(install, check=True)
    records = [trace(episode, producer="1") for episode in EPISODES]
    assert read(READ_TRACE, records, python=python) == generated()
