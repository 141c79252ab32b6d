"""An operator process that is measured from outside."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.operator.lab.recorded import FOLDER
from tests.kube.apiserver import ApiServer
from tests.servers import ROOT, Server, free_port

PACKAGES = ("", "contracts", "operator", "local")


LOOK_SECONDS = 0.5


@dataclass
class Measured:
    """A running operator, which is started again where it has ended, as a Deployment's is."""

    server: Server
    url: str
    restarts: int = 0
    highest_mb: float = 0.0
    """Of any of its processes."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def memory_mb(self) -> tuple[float, float]:
        """Resident memory now and at its highest, in MB."""
        with self.lock:
            assert self.server.process is not None
            if self.server.process.poll() is not None:
                print(f"the operator has ended: {self.server.log.read_text()[-600:]}", flush=True)
                self.restarts += 1
                self.server.launch()
            lines = Path(f"/proc/{self.server.process.pid}/status").read_text().splitlines()
            fields = dict(line.split(":", 1) for line in lines)
            now, most = (int(fields[key].split()[0]) / 1000 for key in ("VmRSS", "VmHWM"))
            self.highest_mb = max(self.highest_mb, most)
            return round(now, 1), round(self.highest_mb, 1)

    @contextlib.contextmanager
    def kept_running(self) -> Iterator[None]:
        """Look at it again and again until the end."""
        done = threading.Event()

        def look() -> None:
            while not done.wait(LOOK_SECONDS):
                self.memory_mb()

        looking = threading.Thread(target=look)
        looking.start()
        try:
            yield
        finally:
            done.set()
            looking.join()

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
    measured = Measured(server=process, url=f"http://127.0.0.1:{port}")
    with process, measured.kept_running():
        yield measured
