"""The container that runs programs which the policy wrote, beside the agent.

It has nothing of the run: another user, no Secret, no spec, no token, no environment. The folder
of one socket is all that it shares, with the agent alone.
"""

from __future__ import annotations

from typing import Any

from rl_contracts import env
from rl_contracts.spec.resources import RLJobSpec
from rl_operator.render import pods

Manifest = dict[str, Any]

USER = 65533
"""Not the other containers': pods.USER."""
FOLDER = "/run/rl-sandbox"
SOCKET = f"{FOLDER}/programs"
SERVER_MEGABYTES = 256
NO_IDENTITY = {
    "eks.amazonaws.com/skip-containers": ",",
    "azure.workload.identity/skip-containers": ";",
}
"""Annotations that list containers, and what stands between their names."""
REQUESTS = {"cpu": "50m", "memory": "128Mi"}


def container(agent: Manifest, spec: RLJobSpec) -> Manifest:
    """The native sidecar: it outlives the agent, which finishes what runs.

    Args:
        agent: the agent's container, whose image has the programs' packages.
        spec: says what programs may use.
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
    """Annotations by which a cloud's webhooks give the programs no token of the pod's identity."""
    mine = [
        init_container["name"]
        for init_container in pod["initContainers"]
        if init_container["name"].split("-")[0] == "sandbox"
    ]
    return {name: between.join(mine) for name, between in NO_IDENTITY.items() if mine}


def volume() -> Manifest:
    """Holds the socket and nothing else; programs cannot write there."""
    return {"name": "sandbox", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}


def reached_by(agent: Manifest) -> Manifest:
    """The agent's container, told where programs are run."""
    return agent | {
        "env": [*agent["env"], {"name": env.SANDBOX_SOCKET, "value": SOCKET}],
        "volumeMounts": [*agent["volumeMounts"], {"name": "sandbox", "mountPath": FOLDER}],
    }
