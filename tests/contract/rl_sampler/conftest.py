"""A real SGLang server for the session, and agents as processes beside it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rl_contracts import env
from rl_contracts.documents.sampler import Sampler
from rl_contracts.ids import RunId, sampler_id
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.contract.rl_sampler.tiny_model import write_model
from tests.documents import RUN
from tests.manifests import a_job
from tests.servers import ROOT, free_port
from tests.waiting import HUNG_SECONDS, until

ENGINE_PYTHON = Path(
    os.environ.get("RL_ENGINE_PYTHON", "~/.cache/rl-operator/venv-engine/bin/python")
).expanduser()
ANSWER_SECONDS = 60.0
ENGINE_START_SECONDS = 2 * HUNG_SECONDS
MODEL_KEY = "models/tiny"
# The agent's image has no torch, and neither has the agent here: that is a third of its start.
WITHOUT_TORCH = (
    "import runpy, sys; sys.modules['torch'] = None; "
    "sys.argv[0] = 'rl_sampler'; runpy.run_module('rl_sampler', run_name='__main__')"
)


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


@dataclass
class EngineServer:
    """A real SGLang server on the CPU."""

    port: int
    model: Path
    folder: Path
    dtype: str = "float32"
    arguments: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it; ``wait_ready`` waits."""
        command = [
            str(ENGINE_PYTHON),
            "-m",
            "sglang.launch_server",
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
            "--max-total-tokens",
            "32768",
            "--max-running-requests",
            "64",
            "--skip-server-warmup",
            *self.arguments,
        ]
        environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "TMPDIR": str(self.folder),
        }
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
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(ProcessLookupError):
                if os.getpgid(int(folder.name)) == self.process.pid:
                    found.append(int(folder.name))
        return found

    def adapters(self) -> dict[str, str]:
        """Folders of the adapters that it says it holds, by name."""
        status, body = get(f"{self.url}/v1/models")
        assert status == 200
        return {load["id"]: load["root"] for load in json.loads(body)["data"] if load["parent"]}

    def weight_version(self) -> str:
        """What it says that it serves; empty while it is down."""
        status, body = get(f"{self.url}/model_info")
        return str(json.loads(body)["weight_version"]) if status == 200 else ""


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model in Hugging Face layout."""
    folder = tmp_path_factory.mktemp("model")
    write_model(folder)
    return folder


@pytest.fixture(scope="session")
def engine_server(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path
) -> Iterator[EngineServer]:
    """One engine for the session; a test that kills it starts it again."""
    if not ENGINE_PYTHON.exists():
        pytest.fail(f"{ENGINE_PYTHON} is missing: `make venv` makes it")
    server = EngineServer(
        port=free_port(), model=tiny_model, folder=tmp_path_factory.mktemp("engine")
    )
    server.start()
    try:
        server.wait_ready()
        yield server
    finally:
        server.kill()


@dataclass
class Pod:
    """One sampler pod: its folders, and the agent's process in it."""

    folder: Path
    environment: dict[str, str]
    stores: Stores
    port: int
    process: subprocess.Popen[bytes] | None = None

    def command(self, program: str) -> list[str]:
        """A program of the agent's image."""
        return [sys.executable, "-c", WITHOUT_TORCH, program]

    def stage(self) -> subprocess.CompletedProcess[bytes]:
        """Run the init container's program."""
        return subprocess.run(
            self.command("stage"),
            env=os.environ | self.environment,
            capture_output=True,
            timeout=HUNG_SECONDS,
            check=False,
        )

    def serve(self) -> None:
        """Start the agent."""
        with (self.folder / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command("serve"), stdout=log, stderr=log, env=os.environ | self.environment
            )

    def serve_first_of(self, trainer: ScriptedTrainer) -> None:
        """Stage, and serve the first policy that a trainer publishes."""
        assert self.stage().returncode == 0
        trainer.publish(seed=1)
        self.serve()
        self.wait_version(1)

    def signal(self, number: int) -> int:
        """Send a signal, wait for the end, return the exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        status = self.process.wait(timeout=HUNG_SECONDS)
        self.process = None
        return status

    def log(self) -> str:
        """What the agent said."""
        path = self.folder / "agent.log"
        return path.read_text() if path.exists() else ""

    def get(self, path: str) -> tuple[int, str]:
        """Ask the agent's HTTP server."""
        return get(f"http://127.0.0.1:{self.port}{path}")

    def document(self) -> Sampler | None:
        """Its registration."""
        name = sampler_id(RunId(self.environment[env.RUN]), self.folder.name)
        return self.stores.samplers.get([name]).get(name)

    def wait_version(self, version: int) -> None:
        """Wait until the engine serves this version."""

        def serves() -> bool:
            assert self.process is not None
            if self.process.poll() is not None:
                pytest.fail(f"the agent ended: {self.log()[-3000:]}")
            return self.get("/ready") == (200, f"serves version {version}\n")

        until(serves, what=f"{self.folder.name} to serve version {version}")

    def wait_document(self, condition: Callable[[Sampler], bool], *, what: str) -> Sampler:
        """Wait until its registration, written every two seconds, is as wanted."""
        found: list[Sampler] = []

        def holds() -> bool:
            document = self.document()
            found[:] = [document] if document is not None else []
            return document is not None and condition(document)

        until(holds, what=what)
        return found[0]


MakePod = Callable[..., Pod]


@pytest.fixture
def trainer(stores: Stores, tiny_model: Path) -> ScriptedTrainer:
    """A run with its model in the bucket and nothing published yet."""
    return start_run(stores, tiny_model)


def start_run(stores: Stores, model: Path) -> ScriptedTrainer:
    """Put the model into the bucket and create the run."""
    for path in model.iterdir():
        stores.objects.put_file(f"{stores.objects.prefix}{MODEL_KEY}/{path.name}", path)
    return ScriptedTrainer(stores)


@pytest.fixture
def make_pod(
    tmp_path: Path, engine_server: EngineServer, store_settings: StoreSettings, stores: Stores
) -> Iterator[MakePod]:
    """Makes pods beside the session's engine; their agents end with the test."""
    pods: list[Pod] = []

    def make(
        name: str = "pod-a",
        *,
        settings: StoreSettings = store_settings,
        stores: Stores = stores,
        **sections: Any,
    ) -> Pod:
        pod = new_pod(
            tmp_path / name,
            engine_url=engine_server.url,
            settings=settings,
            stores=stores,
            sections=sections,
        )
        pods.append(pod)
        return pod

    yield make
    for pod in pods:
        if pod.process is not None:
            pod.signal(signal.SIGKILL)


def new_pod(
    folder: Path,
    *,
    engine_url: str,
    settings: StoreSettings,
    stores: Stores,
    sections: dict[str, Any],
    run: str = RUN,
) -> Pod:
    """Write what a pod has mounted."""
    secret = folder / "stores"
    secret.mkdir(parents=True)
    for key, value in settings.to_mapping().items():
        (secret / key).write_text(value)
    ours: dict[str, Any] = {
        "model": {"uri": f"s3://{settings.s3_bucket}/{settings.s3_prefix}{MODEL_KEY}"},
        "agent": {"sampling": {"maxTokensPerTurn": 8, "maxContextTokens": 64}},
    }
    spec = a_job(**(ours | sections))["spec"]
    (folder / "rljob.json").write_text(json.dumps(spec))
    (folder / "weights").mkdir()
    port = free_port()
    environment = {
        env.NAMESPACE: "ns",
        env.JOB: "job",
        env.RUN: run,
        env.POOL: "main",
        env.POD_NAME: folder.name,
        env.POD_UID: folder.name,
        env.SPEC_FILE: str(folder / "rljob.json"),
        env.STORES_FOLDER: str(secret),
        env.WEIGHTS_FOLDER: str(folder / "weights"),
        env.ENGINE_URL: engine_url,
        env.LISTEN_PORT: str(port),
        env.CHAT_PORT: str(free_port()),
        env.DRAIN_SECONDS: "25",
        env.TOOL_SECRETS_FOLDER: str(folder / "tools"),
        env.ENDPOINT_SECRETS_FOLDER: str(folder / "endpoints"),
        "PYTHONPATH": os.pathsep.join(str(ROOT / one) for one in ("contracts", "sampler_image")),
    }
    return Pod(folder=folder, environment=environment, stores=stores, port=port)
