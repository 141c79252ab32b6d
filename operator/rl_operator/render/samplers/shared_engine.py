"""Renders a pod in which several runs share one engine, with an agent for each run.

Each run has its own containers, Secrets, folders and ports, under its own names. Only the model
exists once. Requests to the engine carry the run's name; the engine's options suffice for all runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_contracts import env
from rl_contracts.spec.workers import SamplerTemplate
from rl_operator.render import disk

Manifest = dict[str, Any]

MODEL_FOLDER = "/model"
BASE_FOLDER = f"{MODEL_FOLDER}/base"
PORT_STEP = 10
"""Distance between the ports of two runs' agents."""
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
"""Succeeds if any agent vouches for the engine: an agent that has ended must not cause a restart
for the others, and the kubelet cannot probe several ports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """The place of one run at an engine."""

    job: str
    number: int = 0
    runs: int = 1
    """Number of runs that share the engine."""

    @property
    def alone(self) -> bool:
        """Whether no other run shares the engine."""
        return self.runs == 1

    def port(self, first: int) -> int:
        """A port of this run's agent; ``first`` is that of the first run."""
        return first + PORT_STEP * self.number

    def named(self, port: str) -> str:
        """Name of a port, unique within the pod."""
        return port if self.alone else f"{port}-{self.number}"

    def folder(self, weights: str) -> str:
        """Folder of this run's policies, in the agent and in the engine."""
        return weights if self.alone else f"{weights}/{self.number}"

    def variables(self) -> dict[str, str]:
        """Environment variables of an agent that shares its engine; none if it does not."""
        if self.alone:
            return {}
        return {env.BASE_FOLDER: BASE_FOLDER, env.ENGINE_RUNS: str(self.runs)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The containers and volumes of one run in a pod."""

    stage: Manifest
    agent: Manifest
    sidecars: tuple[Manifest, ...]
    volumes: tuple[Manifest, ...]


def seated(part: Part, seat: Seat) -> Part:
    """A run's part with names that are unique within the pod; unchanged for a single run."""
    if seat.alone:
        return part
    model = {"name": "model", "mountPath": MODEL_FOLDER}
    stage, agent, *sidecars = (
        _renamed(container, seat) for container in (part.stage, part.agent, *part.sidecars)
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
    """The engine's container for several runs, derived from that for one.

    Args:
        alone: the container for one run; its second argument is the model's folder.
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
    probe = {key: value for key, value in alone["livenessProbe"].items() if key != "httpGet"}
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


def volumes(seats: Sequence[Seat], template: SamplerTemplate) -> list[Manifest]:
    """Volumes that the runs share."""
    return [] if len(seats) == 1 else [disk.volume("model", disk.model(template))]


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
