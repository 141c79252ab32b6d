"""A pod in which several runs sample with one engine: an agent for each of them beside it.

Each run has what it has in a pod of its own: its containers, Secrets, folders and ports, under
names of its own. The model alone is there once. What the runs say to the engine is theirs by name;
the engine's own options are wide enough for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_contracts import env

Manifest = dict[str, Any]

MODEL_FOLDER = "/model"
BASE_FOLDER = f"{MODEL_FOLDER}/base"
PORT_STEP = 10
"""Between the ports of one run's agent and the next one's."""
PROBE_SECONDS = 10
ENGINE_PROBE = """\
import socket, sys
def vouches(port):
    try:
        with socket.create_connection(("127.0.0.1", port), 3) as agent:
            agent.settimeout(3)
            agent.sendall(b"GET /engine-live HTTP/1.0\\r\\nHost: agent\\r\\n\\r\\n")
            return b" 200 " in agent.recv(64)
    except OSError:
        return False
sys.exit(not any(vouches(int(port)) for port in sys.argv[1:]))
"""
"""Whether any agent finds that the engine need not be restarted: one that has ended itself must not
take the engine from the others, and the kubelet cannot ask several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A run's place at an engine."""

    job: str
    number: int = 0
    runs: int = 1
    """That sit there."""

    @property
    def alone(self) -> bool:
        """Whether the engine is this run's alone."""
        return self.runs == 1

    def port(self, first: int) -> int:
        """The port of this run's agent that is ``first`` where it is alone."""
        return first + PORT_STEP * self.number

    def named(self, port: str) -> str:
        """Its name, which one container of a pod may use."""
        return port if self.alone else f"{port}-{self.number}"

    def folder(self, weights: str) -> str:
        """Where this run's policies lie; the engine finds them at the same place."""
        return weights if self.alone else f"{weights}/{self.number}"

    def told(self) -> dict[str, str]:
        """What the agent is told of the others."""
        if self.alone:
            return {}
        return {env.BASE_FOLDER: BASE_FOLDER, env.ENGINE_RUNS: str(self.runs)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a pod has of one run."""

    stage: Manifest
    agent: Manifest
    sidecars: tuple[Manifest, ...]
    volumes: tuple[Manifest, ...]


def seated(part: Part, seat: Seat) -> Part:
    """A run's part under names that no other run's has; the same where it is alone."""
    if seat.alone:
        return part
    model = {"name": "model", "mountPath": MODEL_FOLDER}
    stage, agent, *sidecars = (
        _renamed(one, seat) for one in (part.stage, part.agent, *part.sidecars)
    )
    stage["volumeMounts"] = [*stage["volumeMounts"], model]
    agent["volumeMounts"] = [*agent["volumeMounts"], {**model, "readOnly": True}]
    return Part(
        stage=stage,
        agent=agent,
        sidecars=tuple(sidecars),
        volumes=tuple({**volume, "name": _own(volume["name"], seat)} for volume in part.volumes),
    )


def engine(alone: Manifest, seats: Sequence[Seat], *, weights: str, first_port: int) -> Manifest:
    """The engine's container for several runs, made from that for one.

    Args:
        alone: the container, whose first argument but one is the model's folder.
        seats: of the runs.
        weights: folder of all runs' policies.
        first_port: of the first run's agent.
    """
    if len(seats) == 1:
        return alone
    kept = [
        volume_mount for volume_mount in alone["volumeMounts"] if volume_mount["name"] != "weights"
    ]
    folders = [
        {"name": _own("weights", seat), "mountPath": seat.folder(weights), "readOnly": True}
        for seat in seats
    ]
    ports = [str(seat.port(first_port)) for seat in seats]
    probe = {key: one for key, one in alone["livenessProbe"].items() if key != "httpGet"}
    asked = {"exec": {"command": ["python", "-S", "-c", ENGINE_PROBE, *ports]}}
    return alone | {
        "args": ["--model-path", BASE_FOLDER, *alone["args"][2:]],
        "livenessProbe": {**asked, **probe, "periodSeconds": PROBE_SECONDS, "failureThreshold": 6},
        "volumeMounts": [
            {"name": "model", "mountPath": MODEL_FOLDER, "readOnly": True},
            *folders,
            *kept,
        ],
    }


def volumes(seats: Sequence[Seat]) -> list[Manifest]:
    """What the pod's runs share."""
    return [] if len(seats) == 1 else [{"name": "model", "emptyDir": {}}]


def _renamed(container: Mapping[str, Any], seat: Seat) -> Manifest:
    return {
        **container,
        "name": f"{container['name']}-{seat.job}",
        "volumeMounts": [
            {**volume_mount, "name": _own(volume_mount["name"], seat)}
            for volume_mount in container["volumeMounts"]
        ],
    }


def _own(volume: str, seat: Seat) -> str:
    return f"{volume}-{seat.number}"
