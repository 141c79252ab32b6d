"""A pod as the operator renders it, whose containers are processes that share a device by turns."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rl_contracts import env
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_contracts.turns import GATE
from rl_operator.render import trainer
from rl_sampler.engine.turns import NOTE
from tests.contract.rl_sampler.engine_server import ENGINE_PYTHON
from tests.contract.rl_sampler.fork_server import SOURCES
from tests.contract.rl_sampler.pods import AgentProcess, new_process
from tests.contract.rl_trainer.world import RUN, World
from tests.servers import free_port
from tests.unit.rl_operator.builders import IMAGES, a_meta
from tests.waiting import HUNG_SECONDS, until

POLL_SECONDS = 0.2
ON_PROCESSOR = [
    *("--device", "cpu", "--attention-backend", "torch_native", "--skip-server-warmup"),
    *("--max-total-tokens", "32768", "--max-running-requests", "64"),
]
SECTIONS: dict[str, Any] = {
    "placement": "Colocated",
    "agent": {"sampling": {"maxTokensPerTurn": 3, "maxContextTokens": 32}},
    "weightSync": {"timeoutSeconds": 60},
}
PORTS = ("30000", "8080", "8090", "8093")
"""Of engine, trainer, agent and chat; of the machine they may be taken."""
FROM_THE_POD = {env.POD_NAME: "pod-a", env.POD_UID: "pod-a"}


@dataclass
class TurnsPod:
    """The pod's processes; sidecars that end are started again, as by a kubelet."""

    world: World
    containers: Mapping[str, dict[str, Any]]
    """As rendered, by name."""
    places: Mapping[str, str]
    """Folders of the machine for those of the pod."""
    ports: Mapping[str, str] = field(
        default_factory=lambda: {port: str(free_port()) for port in PORTS}
    )
    engine: subprocess.Popen[bytes] | None = None
    agent: AgentProcess | None = None
    trainers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)

    @property
    def turns(self) -> Path:
        """Folder of the socket, the gate and the note."""
        return Path(self.places["/run/rl-turns"])

    @property
    def weights(self) -> Path:
        """The engine's weights folder."""
        return Path(self.places["/weights"])

    def placed(self, value: str) -> str:
        """A value of the pod as it is on this machine."""
        for ours, theirs in self.places.items():
            if value == ours or value.startswith(f"{ours}/"):
                return theirs + value.removeprefix(ours)
        for ours, theirs in self.ports.items():
            if value == ours or value.endswith(f":{ours}"):
                return value.removesuffix(ours) + theirs
        return value

    def environment(self, container: str) -> dict[str, str]:
        """The variables that the operator sets, for this machine."""
        return {
            each["name"]: self.placed(each.get("value", FROM_THE_POD.get(each["name"], "")))
            for each in self.containers[container]["env"]
        }

    def stage(self) -> None:
        """The init container."""
        log = self.world.folder / "stage.log"
        ended = self._ours("stage", log).wait(timeout=HUNG_SECONDS)
        assert ended == 0, log.read_text()

    def serve(self) -> None:
        """Start the agent."""
        self.agent = self._ours("agent", self.world.folder / "agent.log")

    def _ours(self, container: str, log: Path) -> AgentProcess:
        *_, program = self.containers[container]["command"]
        paths = {"PYTHONPATH": os.pathsep.join(SOURCES)}
        return new_process(program, os.environ | self.environment(container) | paths, log)

    def start_engine(self) -> None:
        """Start the engine by the rendered command, the gate before it."""
        rendered = self.containers["engine"]
        command = [self.placed(each) for each in (*rendered["command"], *rendered["args"])]
        command = [str(ENGINE_PYTHON) if each == "python3" else each for each in command]
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        own = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        with (self.world.folder / "engine.log").open("ab") as log:
            self.engine = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env=kept | self.environment("engine") | own,
                start_new_session=True,
            )

    def kill_engine(self) -> None:
        """Kill it with its workers."""
        assert self.engine is not None
        with suppress(ProcessLookupError):
            os.killpg(self.engine.pid, signal.SIGKILL)

    @property
    def engine_listens(self) -> bool:
        """Whether the engine has come as far as to accept connections."""
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", int(self.ports["30000"]))) == 0

    def train(self) -> subprocess.Popen[bytes]:
        """Start the trainer."""
        given = self.environment("pytorch") | {env.LISTEN_PORT: ""}
        self.trainers.append(self.world.process(**given))
        return self.trainers[-1]

    def turn(self) -> str:
        """What the agent has noted last."""
        return (self.turns / NOTE).read_text()

    @property
    def gate_is_open(self) -> bool:
        """Whether an engine may start."""
        return (self.turns / GATE).exists()

    def logs(self) -> str:
        """The ends of all logs."""
        folder = self.world.folder
        names = ("trainer.log", "agent.log", "engine.log")
        paths = [folder / name for name in names if (folder / name).exists()]
        return "\n".join(f"--- {path.name}\n{path.read_text()[-3000:]}" for path in paths)

    def wait_trained(self, process: subprocess.Popen[bytes], *, seconds: float) -> None:
        """Wait until a trainer has ended well."""

        def ended() -> bool:
            return process.poll() is not None

        until(ended, what="the trainer to end", seconds=seconds, seen=self.logs)
        assert process.returncode == 0, self.logs()

    def restart_what_ends(self) -> None:
        """Restart engine and agent when they end, until ``close``."""
        while not self._ended.wait(POLL_SECONDS):
            if self.engine is None or self.engine.poll() is not None:
                self.start_engine()
            if self.agent is None or self.agent.poll() is not None:
                self.serve()

    def close(self) -> None:
        """Restart nothing any more."""
        self._ended.set()

    def kill(self) -> None:
        """Kill what runs."""
        for process in self.trainers:
            process.kill()
            process.wait(timeout=HUNG_SECONDS)
        if self.engine is not None:
            self.kill_engine()
            self.engine.wait(timeout=HUNG_SECONDS)
        if self.agent is not None and self.agent.poll() is None:
            self.agent.send_signal(signal.SIGKILL)
            self.agent.wait(timeout=HUNG_SECONDS)


@contextmanager
def turns_pod(
    folder: Path,
    stores: Stores,
    settings: StoreSettings,
    *,
    engine: Sequence[str] = ON_PROCESSOR,
    model: Mapping[str, Any] = {},
    sections: Mapping[str, Any] = {},
    **training: Any,
) -> Iterator[TurnsPod]:
    """A pod whose init container has ended and whose sidecars run; killed in the end.

    Args:
        folder: of the machine, for those of the pod.
        stores: of the run.
        settings: theirs.
        engine: its arguments.
        model: what differs from the tiny model.
        sections: of the manifest, in place of the test's.
        training: what differs from a short training.
    """
    world = World.make(folder, stores, settings, model=model, **training)
    spec = world.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    template = {"engine": {"startupSeconds": 900, "args": list(engine)}}
    samplers = {"samplers": [{"name": "main", "template": template}]}
    world.spec = RLJobSpec.model_validate(spec | SECTIONS | samplers | dict(sections))
    world.write_mounts()
    job = replace(a_meta("sums"), uid=RUN)
    rendered = trainer.pod_template(job, world.spec, attempt=1, images=IMAGES)["spec"]
    containers = {
        each["name"]: each for each in (*rendered["initContainers"], *rendered["containers"])
    }
    places = {
        "/etc/rl/spec": str(folder),
        "/etc/rl/stores": str(folder / "stores"),
        "/etc/rl": str(folder / "none"),
        "/weights": str(folder / "weights"),
        "/run/rl-turns": str(folder / "turns"),
        "/run/rl-engine": str(folder / "key"),
        "/tmp": str(folder),
    }
    for place in ("/run/rl-turns", "/run/rl-engine"):
        Path(places[place]).mkdir()
    pod = TurnsPod(world=world, containers=containers, places=places)
    pod.stage()
    kubelet = threading.Thread(target=pod.restart_what_ends, name="kubelet")
    kubelet.start()
    try:
        yield pod
    finally:
        pod.close()
        kubelet.join()
        pod.kill()
