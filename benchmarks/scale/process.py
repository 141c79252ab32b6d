"""An operator process that is measured from outside."""

from __future__ import annotations

import contextlib
import os
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.scale.recorded import FOLDER
from tests.apiserver import ApiServer
from tests.servers import ROOT, Server, free_port

PACKAGES = ("", "contracts", "operator", "local")


@dataclass
class Measured:
    """A running operator."""

    server: Server
    url: str

    def memory_mb(self) -> tuple[float, float]:
        """Resident memory now and at its highest, in MB."""
        assert self.server.process is not None
        lines = Path(f"/proc/{self.server.process.pid}/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        now, most = (int(fields[key].split()[0]) / 1000 for key in ("VmRSS", "VmHWM"))
        return round(now, 1), round(most, 1)

    def cpu_seconds(self) -> float:
        """Of the process so far, in user and system mode."""
        assert self.server.process is not None
        text = Path(f"/proc/{self.server.process.pid}/stat").read_text()
        parts = text.rpartition(")")[2].split()
        return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")

    def samples(self) -> dict[str, float]:
        """Its metrics, by name and labels as they are written."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}


@contextlib.contextmanager
def running(
    server: ApiServer,
    folder: Path,
    *,
    module: str,
    recorded: Path,
    environment: dict[str, str] | None = None,
) -> Iterator[Measured]:
    """Start a module as an operator and stop it at the end."""
    port = free_port()
    paths = [str(ROOT / package) for package in PACKAGES]
    images = [f"--{name}-image={name}:1" for name in ("operator", "trainer", "sampler", "engine")]
    process = Server(
        command=[
            sys.executable,
            "-m",
            module,
            "--namespace",
            "default",
            "--identity",
            "bench",
            "--listen-port",
            str(port),
            *images,
        ],
        ready_url=f"http://127.0.0.1:{port}/readyz",
        log=folder / f"{module.rpartition('.')[2]}.log",
        environment={
            "KUBECONFIG": str(server.kubeconfig),
            "PYTHONPATH": os.pathsep.join(paths),
            FOLDER: str(recorded),
            **(environment or {}),
        },
    )
    with process:
        yield Measured(server=process, url=f"http://127.0.0.1:{port}")
