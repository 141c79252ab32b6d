"""The server of the GUI example, with the packages that it pins, and Debian's Chromium."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.contract.rl_sampler.tools import third_party
from tests.contract.rl_sampler.tools.tool_servers import listens
from tests.network import chromium
from tests.servers import ROOT, free_port
from tests.waiting import HUNG_SECONDS, until

EXAMPLE = ROOT / "examples" / "gui"


@contextmanager
def running(log: Path, *options: str) -> Iterator[str]:
    """Its URL; it ends with the block."""
    programs = third_party.environment(EXAMPLE / "gui-server-requirements.txt", "venv-gui")
    port = free_port()
    command = [str(programs / "python"), str(EXAMPLE / "server.py"), "--port", str(port), *options]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--chromium", chromium.program(headless_shell=True)],
            stdout=output,
            stderr=output,
        )
    url = f"http://127.0.0.1:{port}/mcp"
    try:
        until(lambda: listens(url), what="the browser's server", seen=log.read_text)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=HUNG_SECONDS)
