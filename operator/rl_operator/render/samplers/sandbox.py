"""The sidecar that runs programs written by the policy.

It is isolated from the run: another user, no Secret, no spec, no token, no environment. It shares
one folder with a socket, with the agent only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rl_contracts import env
from rl_contracts.spec.resources import RLJobSpec
from rl_operator.render import disk, pods

Manifest = dict[str, Any]

USER = 65533
"""Differs from ``pods.USER`` of the other containers."""
FOLDER = "/run/rl-sandbox"
SOCKET = f"{FOLDER}/programs"
SERVER_MEGABYTES = 256
NO_IDENTITY = {
    "eks.amazonaws.com/skip-containers": ",",
    "azure.workload.identity/skip-containers": ";",
}
"""Annotations with a list of container names, and the separator of each."""
REQUESTS = {"cpu": "50m", "memory": "128Mi"}


def container(agent: Manifest, spec: RLJobSpec) -> Manifest:
    """The native sidecar: it outlives the agent, which finishes running episodes.

    Args:
        agent: the agent's container, whose image holds the programs' packages.
        spec: with the limits of programs.
    """
    limits = spec.program_limits
    memory = f"{SERVER_MEGABYTES + limits.slots * limits.megabytes}Mi"
    return {
        "name": "sandbox",
        "image": agent["image"],
        "imagePullPolicy": agent["imagePullPolicy"],
        "restartPolicy": "Always",
        "command": ["python", "-m", "rl_sampler.sandbox.server", SOCKET],
        "args": ["--slots", str(limits.slots)],
        "resources": {"requests": dict(REQUESTS), "limits": {"memory": memory}},
        "securityContext": pods.container_security() | {"runAsUser": USER, "runAsGroup": USER},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "sandbox", "mountPath": FOLDER}],
    }


def kept_from(pod: Manifest) -> dict[str, str]:
    """Annotations that keep cloud webhooks' tokens out of containers that run others' code."""
    mine = [
        init_container["name"]
        for init_container in pod["initContainers"]
        if init_container["name"].split("-")[0] in ("code", "sandbox")
    ]
    return without_identity(mine) if mine else {}


def without_identity(containers: Sequence[str]) -> dict[str, str]:
    """The same for these containers."""
    return {name: between.join(containers) for name, between in NO_IDENTITY.items()}


def volume() -> Manifest:
    """Volume of the socket; programs cannot write to it."""
    return disk.in_memory("sandbox", disk.SMALL)


def reached_by(agent: Manifest) -> Manifest:
    """The agent's container with access to the socket."""
    return agent | {
        "env": [*agent["env"], {"name": env.SANDBOX_SOCKET, "value": SOCKET}],
        "volumeMounts": [*agent["volumeMounts"], {"name": "sandbox", "mountPath": FOLDER}],
    }
