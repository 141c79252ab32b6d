"""A real SGLang server on the CPU, as a process of the test."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

from rl_contracts.engine_server import ENVIRONMENT, PROGRAM
from tests.servers import free_port
from tests.waiting import HUNG_SECONDS, until

ENGINE_PYTHON = Path(
    os.environ.get("RL_ENGINE_PYTHON", "~/.cache/rl-operator/venv-engine/bin/python")
).expanduser()
ANSWER_SECONDS = 60.0
ENGINE_START_SECONDS = 2 * HUNG_SECONDS


def get(url: str) -> tuple[int, str]:
    """Status and body; status 0 where nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except (urllib.error.URLError, OSError):
        return 0, ""


def generate(url: str, prompt: list[int], *, length: int, **fields: object) -> dict[str, Any]:
    """What the engine says of a response of ``length`` tokens, with their log-probabilities."""
    sampling = {"max_new_tokens": length, "temperature": 1.0, "ignore_eos": True}
    body = {"input_ids": prompt, "sampling_params": sampling, "return_logprob": True} | fields
    request = urllib.request.Request(
        f"{url}/generate",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
        meta: dict[str, Any] = json.load(answer)["meta_info"]
    return meta


@dataclass
class EngineServer:
    """A real SGLang server on the CPU."""

    port: int
    model: Path
    folder: Path
    dtype: str = "float32"
    arguments: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    """A program that becomes the server, with its arguments."""
    process: subprocess.Popen[bytes] | None = None

    @classmethod
    @contextlib.contextmanager
    def running(
        cls,
        *,
        model: Path,
        folder: Path,
        dtype: str = "float32",
        arguments: tuple[str, ...] = (),
        before: tuple[str, ...] = (),
    ) -> Iterator[Self]:
        """An engine that takes requests; killed at the end of the block."""
        if not ENGINE_PYTHON.exists():
            pytest.fail(f"{ENGINE_PYTHON} is missing: `make venv` makes it")
        server = cls(
            port=free_port(),
            model=model,
            folder=folder,
            dtype=dtype,
            arguments=arguments,
            before=before,
        )
        server.start()
        try:
            server.wait_ready()
            yield server
        finally:
            server.kill()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it; ``wait_ready`` waits."""
        command = [
            *self.before,
            str(ENGINE_PYTHON),
            "-c",
            PROGRAM,
            "--model-path",
            str(self.model),
            "--weight-version",
            "base",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--dtype",
            self.dtype,
            "--device",
            "cpu",
            "--attention-backend",
            "torch_native",
            "--sleep-on-idle",
            "--incremental-streaming-output",
            "--max-total-tokens",
            "32768",
            "--max-running-requests",
            "64",
            "--skip-server-warmup",
            *self.arguments,
        ]
        environment = (
            os.environ
            | ENVIRONMENT
            | {
                "OMP_NUM_THREADS": "1",
                "HF_HUB_OFFLINE": "1",
                "TMPDIR": str(self.folder),
            }
        )
        environment.pop("PYTHONPATH", None)
        with (self.folder / "engine.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def wait_ready(self) -> None:
        """Wait until it takes requests."""

        def ready() -> bool:
            assert self.process is not None
            if self.process.poll() is not None:
                pytest.fail(f"engine ended: {(self.folder / 'engine.log').read_text()[-3000:]}")
            return get(f"{self.url}/ready")[0] == 200

        until(ready, seconds=ENGINE_START_SECONDS, what="the engine to be ready")

    def kill(self) -> None:
        """Kill it and its workers at once."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=HUNG_SECONDS)

    def pids(self) -> list[int]:
        """Its processes: they have a group of their own."""
        assert self.process is not None
        pids = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(ProcessLookupError):
                if os.getpgid(int(folder.name)) == self.process.pid:
                    pids.append(int(folder.name))
        return pids

    def adapters(self) -> dict[str, str]:
        """Folders of the adapters that it says it holds, by name."""
        status, body = get(f"{self.url}/v1/models")
        assert status == 200
        return {load["id"]: load["root"] for load in json.loads(body)["data"] if load["parent"]}

    def weight_version(self) -> str:
        """What it says that it serves; empty while it is down."""
        status, body = get(f"{self.url}/model_info")
        return str(json.loads(body)["weight_version"]) if status == 200 else ""
