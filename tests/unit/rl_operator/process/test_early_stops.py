"""A process that is told to stop while it starts does so, and does not wait to be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.network.loopback import hanging
from tests.servers import free_port
from tests.waiting import HUNG_SECONDS


def a_kubeconfig(folder: Path, url: str) -> Path:
    path = folder / "kubeconfig"
    content = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "c", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    }
    path.write_text(json.dumps(content))
    return path


def started(*options: str, **environment: str) -> subprocess.Popen[str]:
    images = [f"--{name}-image={name}:1" for name in ("operator", "trainer", "sampler", "engine")]
    return subprocess.Popen(
        [
            sys.executable,
            *options,
            "-m",
            "rl_operator",
            "--namespace",
            "n",
            "--identity",
            "i",
            "--listen-port",
            str(free_port()),
            *images,
        ],
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
    )


def test_sigterm_while_the_process_imports_ends_it_with_status_0() -> None:
    """A container's first process receives no signal without a handler."""
    process = started("-X", "importtime", KUBECONFIG="/dev/null")
    assert process.stderr is not None
    for line in process.stderr:
        if line.rstrip().endswith("rl_operator.cache"):
            break
    process.send_signal(signal.SIGTERM)
    _, left = process.communicate(timeout=HUNG_SECONDS)
    assert process.returncode == 0
    assert "Traceback" not in left


def test_sigterm_while_the_api_server_hangs_ends_the_process_with_status_0(tmp_path: Path) -> None:
    with hanging() as (url, asked):
        process = started(KUBECONFIG=str(a_kubeconfig(tmp_path, url)))
        try:
            asked.get(timeout=HUNG_SECONDS)
            process.send_signal(signal.SIGTERM)
            _, stderr = process.communicate(timeout=HUNG_SECONDS)
        finally:
            process.kill()
    assert process.returncode == 0, stderr
    messages = [json.loads(line)["message"] for line in stderr.splitlines()]
    assert messages[0] == "stopping"
    assert "while these threads wait for answers" in messages[-1]
