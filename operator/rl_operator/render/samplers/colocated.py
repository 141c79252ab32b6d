"""Renders the pod in which an engine with its agent shares the devices of a trainer.

It is the trainer's pod with the containers of a sampler pod as native sidecars: the kubelet
restarts them alone, they do not keep the pod from ending, and they end after the trainer, which
needs its turn for a last checkpoint. A device of a plugin belongs to one container alone; trainer
and engine share devices that both claim (``resources.claims`` in ``trainer.podTemplate``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl_contracts import env
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.turns import GATE
from rl_operator.kube.metadata import Meta
from rl_operator.kube.settings import Images
from rl_operator.render import disk
from rl_operator.render.pool import future_pool
from rl_operator.render.samplers import agents, arguments, engine, engine_key, gate
from rl_operator.render.samplers.shared_engine import Seat

Manifest = dict[str, Any]

SEAT = 1
"""The agent's ports must differ from the trainer's, which serves metrics where agents do."""
FOLDER = "/run/rl-turns"
MOUNT: Manifest = {"name": "turns", "mountPath": FOLDER}
WEIGHTS: Manifest = {"name": "weights", "mountPath": engine.WEIGHTS_FOLDER}
TMP, AGENTS_TMP = "tmp", "agent-tmp"
MEMORY_SAVER = "--enable-memory-saver"
"""Lets SGLang give back the memory of weights and cache; for accelerators."""


def agent_port() -> int:
    """Where the agent serves its metrics."""
    return Seat(job="", number=SEAT).port(agents.PORT)


def joined(pod: Manifest, job: Meta, spec: RLJobSpec, *, images: Images) -> Manifest:
    """The trainer's pod with engine and agent beside the trainer's container.

    Args:
        pod: the spec of the trainer's pod, with the one container.
        job: whose pod.
        spec: of the job; has one group of samplers.
        images: default images.
    """
    (group,), (trainer,) = spec.samplers, pod["containers"]
    meta, pool_spec = future_pool(job, group)
    seat = Seat(job=job.name, number=SEAT)
    part = engine_key.known_to(agents.part(meta, pool_spec, job, spec, seat=seat, images=images))
    served = engine.container(pool_spec, [spec], images=images, agent_port=seat.port(agents.PORT))
    agent = _taking_turns(_own_tmp(part.agent), {})
    agent.pop("readinessProbe")  # the pod is ready when the trainer runs
    known = {volume["name"] for volume in pod["volumes"]}
    listed = [
        *(
            volume | {"name": AGENTS_TMP if volume["name"] == TMP else volume["name"]}
            for volume in part.volumes
        ),
        disk.volume("engine-tmp", disk.ENGINE_TMP),
        engine_key.volume(),
        disk.in_memory("shared-memory", disk.SHARED_MEMORY),
        disk.in_memory(MOUNT["name"], disk.SMALL),
    ]
    return pod | {
        "initContainers": [
            _taking_turns(_own_tmp(part.stage), {}),
            _gated(engine_key.asked_by(served)),
            *part.sidecars,
            agent | {"restartPolicy": "Always"},
        ],
        "containers": [
            _taking_turns(trainer, {env.WEIGHTS_FOLDER: engine.WEIGHTS_FOLDER}, WEIGHTS)
        ],
        "volumes": [
            *pod["volumes"],
            *(volume for volume in listed if volume["name"] not in known),
        ],
    }


def _gated(served: Manifest) -> Manifest:
    """The engine, which waits for its turn before it starts."""
    saving = [] if arguments.on_processor(served["args"]) else [MEMORY_SAVER]
    return served | {
        "command": gate.command(f"{FOLDER}/{GATE}", served["command"]),
        "args": [*served["args"], *saving],
        "volumeMounts": [*served["volumeMounts"], {**MOUNT, "readOnly": True}],
    }


def _taking_turns(container: Manifest, variables: Mapping[str, str], *mounts: Manifest) -> Manifest:
    """A container with the folder of the turns."""
    wanted = {**variables, env.TURNS_FOLDER: FOLDER}
    kept = [variable for variable in container["env"] if variable["name"] not in wanted]
    return container | {
        "env": [*kept, *({"name": name, "value": value} for name, value in wanted.items())],
        "volumeMounts": [*container["volumeMounts"], *mounts, MOUNT],
    }


def _own_tmp(container: Manifest) -> Manifest:
    """A container of the agent's with a volume of its own for temporary files."""
    return container | {
        "volumeMounts": [
            mount | {"name": AGENTS_TMP if mount["name"] == TMP else mount["name"]}
            for mount in container["volumeMounts"]
        ]
    }
