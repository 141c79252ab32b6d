"""Harbor's own model of ``task.toml``, as published on PyPI, and ours read the same tasks alike."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.documents.datasets.harbor import parse_task
from tests.unit.rl_contracts.datasets.test_harbor import FILES, WHOLE

PACKAGES = ("harbor==0.26.0", "toml==0.10.2")
"""The model needs these and pydantic; the rest of Harbor needs a newer Python."""
READ = """
import sys
from harbor.models.task.config import TaskConfig
print(TaskConfig.model_validate_toml(sys.stdin.read()).model_dump_json())
"""
WRITE = """
from harbor.models.task.config import TaskConfig
print(TaskConfig().model_dump_toml())
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("harbor")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder)]
    subprocess.run([*pip, "--no-deps", "--ignore-requires-python", *PACKAGES], check=True)
    return folder


def harbor(packages: Path, script: str, *, given: str = "") -> str:
    environment = {"PYTHONPATH": str(packages), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=given,
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return done.stdout


def test_both_read_the_same_limits(packages: Path) -> None:
    theirs: dict[str, Any] = json.loads(harbor(packages, READ, given=WHOLE.decode()))
    ours = parse_task(WHOLE, files=FILES)
    environment, verifier = theirs["environment"], theirs["verifier"]
    assert (ours.image, ours.folder) == (environment["docker_image"], environment["workdir"])
    assert (ours.cpus, ours.memory_mb) == (environment["cpus"], environment["memory_mb"])
    assert ours.storage_mb == environment["storage_mb"], "written as a size with a unit"
    assert (ours.environment, ours.tests_environment) == (environment["env"], verifier["env"])
    assert ours.agent_seconds == theirs["agent"]["timeout_sec"]
    assert ours.tests_seconds == verifier["timeout_sec"]
    assert ours.public_network is (environment["network_mode"] == "public")


def test_a_task_that_harbor_writes_without_settings_is_read(packages: Path) -> None:
    written = harbor(packages, WRITE)
    assert "[environment]" in written
    assert parse_task(written.encode(), files=FILES) == parse_task(b"", files=FILES)
