"""The pod's program, with TLS: a browser's way from the login to a run."""

from __future__ import annotations

import http.client
import os
import re
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode

from rl_console.dashboard.gate import SESSION
from tests.contract.rl_operator.viewing import Viewing
from tests.contract.rl_operator.world import WORLD_SYSTEM
from tests.servers import ROOT, free_port
from tests.waiting import HUNG_SECONDS, until

MOST_MEMORY = 300 << 20
"""Bytes; the pod's limit leaves room for answers to many viewers at once."""


def peak_memory(pid: int) -> int:
    """Bytes that a process held at most."""
    status = Path(f"/proc/{pid}/status").read_text()
    (kilobytes,) = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(kilobytes) << 10


def certificate(folder: Path) -> None:
    """As in a Secret of type kubernetes.io/tls."""
    names = "subjectAltName=IP:127.0.0.1"
    made = ("-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=runs", "-addext", names)
    files = ("-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt"))
    subprocess.run(["openssl", "req", "-x509", *made, *files], check=True, capture_output=True)


def test_the_program_of_the_pod_serves_a_run_over_tls(viewing: Viewing, tmp_path: Path) -> None:
    viewing.publish()
    certificate(tmp_path)
    port, server = free_port(), viewing.world.apiserver
    host, _, server_port = server.url.removeprefix("https://").partition(":")
    command = [sys.executable, "-m", "rl_console.dashboard"]
    command += [f"--operator-namespace={WORLD_SYSTEM}", f"--authorities={server.certificate}"]
    command += ["--host=127.0.0.1", f"--port={port}", f"--tls-folder={tmp_path}"]
    environment = {
        **os.environ,
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": server_port,
        "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("contracts", "console")),
    }
    trusted = ssl.create_default_context(cafile=str(tmp_path / "tls.crt"))

    def ask(
        method: str, path: str, body: str = "", **headers: str
    ) -> tuple[int, http.client.HTTPMessage, str]:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", port, timeout=HUNG_SECONDS, context=trusted
        )
        try:
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def is_healthy() -> bool:
        assert process.poll() is None, (tmp_path / "log").read_text()
        try:
            return ask("GET", "/healthz")[0] == 200
        except OSError:
            return False

    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        until(is_healthy, what="the dashboard")
        run = f"/n/{viewing.world.namespace}/jobs/job"
        status, headers, _ = ask("GET", run)
        assert (status, headers["Location"]) == (303, f"/login?next={run}")
        form = urlencode({"token": viewing.mine, "next": run})
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        status, headers, _ = ask("POST", "/login", form, Origin=f"https://127.0.0.1:{port}", **kind)
        assert (status, headers["Location"]) == (303, run)
        cookie = headers["Set-Cookie"].partition(";")[0]
        assert cookie == f"{SESSION}={viewing.mine}"
        status, headers, page = ask("GET", run, Cookie=cookie)
        assert (status, "Log out" in page) == (200, True)
        assert "server" not in headers
        status, _, metrics = ask("GET", f"{run}/metrics.json?columns=loss", Cookie=cookie)
        assert (status, '"last":3' in metrics) == (200, True), metrics
        assert peak_memory(process.pid) < MOST_MEMORY
    finally:
        process.terminate()
        assert process.wait(HUNG_SECONDS) == -signal.SIGTERM  # uvicorn ends by the signal itself
    assert viewing.mine not in (tmp_path / "log").read_text()
