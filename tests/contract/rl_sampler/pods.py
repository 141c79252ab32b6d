"""Sampler pods of the tests: their folders, and the agent as a process in them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest

from rl_contracts import env
from rl_contracts.documents.sampler import Sampler
from rl_contracts.ids import RunId, sampler_id
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_sampler.user_code.program_pod import KEY_DIGEST, SERVER_FOLDER, prepare_programs
from tests.code_container import PROGRAM
from tests.contract.rl_sampler.engine_server import get
from tests.contract.rl_sampler.fork_server import SOURCES
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.kube.episode_pods import EpisodePods
from tests.processes import children_of
from tests.samples.documents import RUN
from tests.samples.manifests import a_job
from tests.servers import free_port
from tests.waiting import HUNG_SECONDS, until

MODEL_KEY = "models/tiny"
# The agent's image has no torch, and neither has the agent here: that is a third of its start.
WITHOUT_TORCH = (
    "import runpy, sys; sys.modules['torch'] = None; "
    "sys.argv[0] = 'rl_sampler'; runpy.run_module('rl_sampler', run_name='__main__')"
)


class AgentProcess(Protocol):
    """A program of the sampler image as a process."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, number: int, /) -> None: ...


Launch = Callable[[str, Mapping[str, str], Path], AgentProcess]
"""Starts a program with an environment; its output is appended to a file."""


def new_process(program: str, environment: Mapping[str, str], log: Path) -> AgentProcess:
    """Start a program in a new interpreter, as in the image."""
    command = [sys.executable, "-c", WITHOUT_TORCH, program]
    with log.open("ab") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, env=environment)


@dataclass(frozen=True)
class Staged:
    """How the init container's program ended."""

    returncode: int
    stderr: bytes


@dataclass
class Pod:
    """One sampler pod: its folders, and the agent's process in it."""

    folder: Path
    environment: dict[str, str]
    stores: Stores
    port: int
    launch: Launch
    process: AgentProcess | None = None
    modules: list[Path] = field(default_factory=list)
    """Folders of the user's modules, in the container ``code`` alone."""
    code: subprocess.Popen[bytes] | None = None
    """The program of the container ``code``, where the job needs it."""
    programs: subprocess.Popen[bytes] | None = None
    """The server of the pod that runs programs, where the job has one."""
    episode_pods: EpisodePods | None = None
    """The pods of single episodes, where the job has such."""
    closing: ExitStack = field(default_factory=ExitStack)

    def stage(self) -> Staged:
        """Run the init container's program."""
        log = self.folder / "stage.log"
        log.write_bytes(b"")
        returncode = self.launch("stage", self._environment, log).wait(timeout=HUNG_SECONDS)
        return Staged(returncode, log.read_bytes())

    def serve(self) -> None:
        """Start the agent, and the container ``code`` unless it runs."""
        if env.CODE_SOCKET in self.environment and self.code is None:
            self.code = self._serve_code()
        if self.count_episode_pods:
            self.serve_episodes()
        elif env.PROGRAMS in self.environment and self.programs is None:
            self.serve_programs()
        self.process = self.launch("serve", self._environment, self.folder / "agent.log")

    def _serve_code(self) -> subprocess.Popen[bytes]:
        variables = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join([*SOURCES, *map(str, self.modules)]),
            env.SPEC_FILE: self.environment[env.SPEC_FILE],
        }
        command = [sys.executable, "-m", PROGRAM, self.environment[env.CODE_SOCKET]]
        with (self.folder / "code.log").open("ab") as log:
            return subprocess.Popen(command, env=variables, stdout=log, stderr=log)

    @property
    def count_episode_pods(self) -> int:
        """Pods of single episodes that the job has."""
        spec = json.loads(Path(self.environment[env.SPEC_FILE]).read_text())
        program = RLJobSpec.model_validate(spec).agent.program
        return program.episode_pods if program is not None and program.single_use else 0

    def serve_episodes(self) -> None:
        """Keep as many pods of single episodes as the job has, once."""
        if self.episode_pods is not None:
            return
        pods = EpisodePods(
            self.folder / "episodes",
            run=RunId(self.environment[env.RUN]),
            settings=StoreSettings.from_folder(Path(self.environment[env.STORES_FOLDER])),
            port=int(self.environment[env.PROGRAMS].rpartition(":")[2]),
        )
        self.episode_pods = self.closing.enter_context(pods.serving(self.count_episode_pods))

    def serve_programs(self) -> None:
        """Start the server of the pod that runs programs, as its containers do."""
        folder = self.folder / "programs"
        settings = StoreSettings.from_folder(Path(self.environment[env.STORES_FOLDER]))
        prepare_programs(folder, run=RunId(self.environment[env.RUN]), settings=settings)
        port = self.environment[env.PROGRAMS].rpartition(":")[2]
        command = [sys.executable, "-I", "-S", str(folder / SERVER_FOLDER)]
        options = ["--port", port, "--key-digest", str(folder / KEY_DIGEST)]
        variables = {"PATH": os.environ["PATH"], "TMPDIR": str(folder)}  # gone with the pod
        with (self.folder / "programs.log").open("ab") as log:
            self.programs = subprocess.Popen(
                [*command, *options], env=variables, stdout=log, stderr=log
            )

    def kill_programs(self) -> None:
        """Kill that server, and with it what it runs, as the end of its container does."""
        assert self.programs is not None
        running = children_of(self.programs.pid)
        self.programs.kill()
        self.programs.wait(timeout=HUNG_SECONDS)
        for group in running:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        self.programs = None

    def end(self) -> None:
        """Kill what still runs."""
        self.closing.close()
        if self.programs is not None:
            self.kill_programs()
        if self.process is not None:
            self.signal(signal.SIGKILL)
        if self.code is not None:
            self.code.kill()
            self.code.wait(timeout=HUNG_SECONDS)

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self.environment}

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
        documents: list[Sampler] = []

        def holds() -> bool:
            document = self.document()
            documents[:] = [document] if document is not None else []
            return document is not None and condition(document)

        until(holds, what=what)
        return documents[0]


MakePod = Callable[..., Pod]


@contextmanager
def new_stores(settings: StoreSettings, *, patience_seconds: float = 200) -> Iterator[Stores]:
    """A connection to servers that no test has used yet: indexes and bucket are made first."""
    with closing(Stores.connect(settings, patience_seconds=patience_seconds)) as stores:
        stores.mongo.ensure_indexes()
        stores.objects.make_bucket()
        yield stores


def put_model(stores: Stores, model: Path) -> None:
    """Put the model into the bucket, where pods look for it."""
    for path in model.iterdir():
        stores.objects.put_file(f"{stores.objects.prefix}{MODEL_KEY}/{path.name}", path)


def start_run(stores: Stores, model: Path) -> ScriptedTrainer:
    """Put the model into the bucket and create the run."""
    put_model(stores, model)
    return ScriptedTrainer(stores)


def new_pod(
    folder: Path,
    *,
    engine_url: str,
    settings: StoreSettings,
    stores: Stores,
    sections: dict[str, Any],
    run: str = RUN,
    launch: Launch = new_process,
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
        "PYTHONPATH": os.pathsep.join(SOURCES),
    }
    parsed = RLJobSpec.model_validate(spec)
    if parsed.needs_code_container:
        environment[env.CODE_SOCKET] = str(folder / "calls")
    if parsed.agent.program is not None:
        environment[env.GATEWAY_PORT] = str(free_port())
        if not parsed.agent.program.in_sidecar:
            environment[env.PROGRAMS] = f"localhost:{free_port()}"
            environment[env.POD_IP] = "127.0.0.1"
    if parsed.agent.environment is not None and parsed.agent.environment.image is not None:
        environment[env.ENVIRONMENTS] = f"localhost:{parsed.agent.environment.server_port}"
    return Pod(folder=folder, environment=environment, stores=stores, port=port, launch=launch)


@contextmanager
def pods_in(folder: Path, **beside: Any) -> Iterator[MakePod]:
    """Makes pods by ``new_pod`` with these arguments; agents that still run are killed after it."""
    pods: list[Pod] = []

    def make(name: str, **own: Any) -> Pod:
        pods.append(new_pod(folder / name, **(beside | own)))
        return pods[-1]

    yield make
    for pod in pods:
        pod.end()
