"""`up` on a cluster that runs: it keeps healthy parts and repairs the others."""

import os
import subprocess
import sys

import pytest

from rl_local.build import images
from rl_local.control_plane import processes
from rl_local.layout import ROOT, Layout
from rl_local.system import records
from tests.waiting import HUNG_SECONDS


@pytest.fixture(scope="module")
def layout() -> Layout:
    return Layout.from_environment()


def up(*arguments: str) -> str:
    """What `up` prints about its work."""
    done = subprocess.run(
        [sys.executable, "-m", "rl_local", "up", *arguments],
        check=True,
        capture_output=True,
        text=True,
        timeout=HUNG_SECONDS,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": "local"},
    )
    return done.stderr


def pids(layout: Layout) -> dict[str, int]:
    return {name: record.pid for name, record in processes.recorded(layout).items()}


def test_a_second_up_starts_nothing(layout: Layout) -> None:
    up("--images")
    before = pids(layout)
    assert "everything was running" in up("--images")
    assert pids(layout) == before


@pytest.mark.parametrize("name", ["kube-scheduler", "kube-proxy", "registry"])
def test_up_restarts_only_the_dead_process(layout: Layout, name: str) -> None:
    up("--images")
    before = pids(layout)
    records.kill_all([processes.recorded(layout)[name]])
    assert f"started {name}\n" in up("--images")
    after = pids(layout)
    assert after.pop(name) != before.pop(name)
    assert after == before


def test_images_of_the_cluster_are_not_built_twice(layout: Layout) -> None:
    output = up("--images", *images.CLUSTER_IMAGES)
    assert "build image" not in output
    assert "push image" not in output
