"""Down and up in earnest, and a start that is killed: these tests replace the running cluster."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_local import progress
from rl_local.control_plane import processes
from rl_local.control_plane.probes import port_free
from rl_local.layout import BRIDGE, ROOT, Layout
from rl_local.system import network, teardown

ENVIRONMENT = os.environ | {"PYTHONPATH": "local"}
PORTS = (2379, 2380, 5000, 6443, 10248, 10249, 10250, 10256, 10257, 10259)


def rl_local(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "rl_local", *arguments],
        check=True,
        capture_output=True,
        text=True,
        timeout=540,
        cwd=ROOT,
        env=ENVIRONMENT,
    )
    return done.stderr


@pytest.fixture(scope="module")
def layout() -> Iterator[Layout]:
    yield Layout.from_environment()
    rl_local("up", "--images")


def left_behind(layout: Layout) -> list[str]:
    """Whatever a stopped cluster should not have left on the machine, in words."""
    places = [layout.state, *teardown.group_roots()]
    leftovers = [f"folder {place}" for place in places if place.exists()]
    mounted = Path("/proc/self/mountinfo").read_text()
    leftovers += [f"mount {point}" for point in teardown.mounts_below(mounted, layout.state)]
    leftovers += [f"bridge {BRIDGE}"] if Path("/sys/class/net", BRIDGE).exists() else []
    leftovers += [f"port {port}" for port in PORTS if not port_free(port)]
    for program in ("iptables", "ip6tables"):
        for table in network.TABLES:
            saved = progress.output([f"{program}-save", "-t", table])
            chains = re.findall(r"^:((?:KUBE|RL-OPERATOR|CNI)-\S+)", saved, re.MULTILINE)
            leftovers += [f"chain {chain}" for chain in chains]
    return leftovers + [
        f"process {command_line}"
        for command_line in command_lines()
        if str(layout.state) in command_line
    ]


def command_lines() -> Iterator[str]:
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            yield (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def test_down_leaves_nothing_and_may_be_repeated(layout: Layout) -> None:
    rl_local("up", "--images")
    assert len(left_behind(layout)) > 20, "the check sees what a running cluster has"
    rl_local("down")
    assert left_behind(layout) == []
    rl_local("down")
    assert left_behind(layout) == []


@pytest.mark.parametrize("started", ["registry", "etcd", "kube-apiserver", "kubelet"])
def test_a_killed_start_is_gone_on_with(layout: Layout, started: str) -> None:
    rl_local("down")
    argv = [sys.executable, "-m", "rl_local", "up", "--images"]
    with subprocess.Popen(argv, cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.DEVNULL) as first:
        progress.wait_until(
            lambda: processes.record_path(layout, started).exists(),
            what=f"{started} to be launched",
            seconds=120,
            interval=0.005,
        )
        first.send_signal(signal.SIGKILL)
    output = rl_local("up", "--images")
    assert f" {started}" not in output.rpartition("; ")[2], "it was running, and stays"
    assert "everything was running" in rl_local("up", "--images")


def test_a_cluster_of_which_all_processes_died_comes_back(layout: Layout) -> None:
    rl_local("up", "--images")
    for record in processes.recorded(layout).values():
        os.kill(record.pid, signal.SIGKILL)
    assert "etcd, containerd, kube-apiserver" in rl_local("up", "--images")


def test_down_after_a_killed_start_leaves_nothing(layout: Layout) -> None:
    rl_local("up", "--images")
    for record in processes.recorded(layout).values():
        os.kill(record.pid, signal.SIGKILL)
    rl_local("down")
    assert left_behind(layout) == []
