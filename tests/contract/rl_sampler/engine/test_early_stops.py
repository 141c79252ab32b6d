"""An engine and an agent that are told to stop while they start end at once, as first processes.

The kernel gives the first process of a PID namespace no signal for which it has no handler.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rl_sampler import TERMINATED
from tests.contract.rl_sampler.engine_server import EngineServer
from tests.processes import children_of
from tests.servers import ROOT, free_port
from tests.waiting import until

FIRST = ("unshare", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc")
"""What runs a program as the first process of a PID namespace of its own."""
BAR_SECONDS = 10.0
"""A third of a pod's shortest grace; it takes less than one on an idle machine."""


def stop(outer: subprocess.Popen[bytes]) -> float:
    """Send SIGTERM to the first process, and wait for its end; seconds that this took."""
    (first,) = children_of(outer.pid)
    began = time.monotonic()
    os.kill(first, signal.SIGTERM)
    outer.wait(timeout=10 * BAR_SECONDS)
    return time.monotonic() - began


@pytest.mark.soak
def test_an_engine_that_loads_ends_at_once(tmp_path: Path, tiny_model: Path) -> None:
    server = EngineServer(port=free_port(), model=tiny_model, folder=tmp_path, before=FIRST)
    server.start()
    outer = server.process
    assert outer is not None
    try:
        until(
            lambda: any(children_of(child) for child in children_of(outer.pid)),
            what="the engine to start the process that loads the model",
        )
        assert stop(outer) < BAR_SECONDS
        assert outer.returncode == TERMINATED
    finally:
        if outer.poll() is None:
            server.kill()


@contextmanager
def agent_that_starts(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An agent as a first process, whose imports take as long as they take."""
    paths = os.pathsep.join(str(ROOT / name) for name in ("contracts", "sampler_image"))
    command = [*FIRST, sys.executable, "-v", "-m", "rl_sampler", "serve"]
    with (folder / "agent.log").open("wb") as log:
        outer = subprocess.Popen(
            command, stdout=log, stderr=log, env=os.environ | {"PYTHONPATH": paths}
        )
    try:
        yield outer
    finally:
        if outer.poll() is None:
            outer.kill()
            outer.wait()


def test_an_agent_that_imports_ends_at_once(tmp_path: Path) -> None:
    with agent_that_starts(tmp_path) as outer:
        log = tmp_path / "agent.log"
        until(lambda: b"import 'pydantic" in log.read_bytes(), what="the agent to import")
        assert stop(outer) < BAR_SECONDS
        assert outer.returncode == TERMINATED
    assert b"Traceback" not in log.read_bytes()
