"""The sidecar ``code``, which runs what others wrote, without the agent's credentials.

It runs the user's scorers, tools, agent and programs, commands of MCP servers, and math-verify. It
has another user than the agent, its own temporary folder, no Secret but those that ``spec.code``
names, and no token. It shares one folder with a socket, with the agent only.
"""

from __future__ import annotations

from typing import Any

from rl_contracts import env
from rl_contracts.spec.resources import RLJobSpec
from rl_operator.kube.names import SPEC_VOLUME
from rl_operator.render import disk, pods

Manifest = dict[str, Any]

NAME = "code"
USER = 65531
"""Differs from ``pods.USER`` of the agent and from ``sandbox.USER``."""
FOLDER = "/opt/code"
SOCKET_FOLDER = "/run/rl-code"
SOCKET = f"{SOCKET_FOLDER}/calls"
REQUESTS = {"cpu": "50m", "memory": "128Mi"}


def container(agent: Manifest, spec: RLJobSpec) -> Manifest:
    """The native sidecar: it outlives the agent, which finishes running episodes.

    Args:
        agent: the agent's container, whose image is used unless ``spec.code.image`` is set.
        spec: of the job.
    """
    code = spec.code
    own = {
        env.SPEC_FILE: pods.SPEC_FILE,
        "HOME": pods.TMP,
        **({env.CODE_FOLDER: FOLDER} if code.config_map_ref is not None else {}),
    }
    mounts = [
        *(mount for mount in pods.spec_mounts() if mount["name"] == SPEC_VOLUME),
        {"name": "code-socket", "mountPath": SOCKET_FOLDER},
        {"name": "code-tmp", "mountPath": pods.TMP},
    ]
    if code.config_map_ref is not None:
        mounts.append({"name": "code", "mountPath": FOLDER, "readOnly": True})
    rendered = {
        "name": NAME,
        "image": code.image or agent["image"],
        "imagePullPolicy": agent["imagePullPolicy"],
        "restartPolicy": "Always",
        "command": ["python", "-m", "rl_sampler.user_code.server", SOCKET],
        "env": pods.environment(own, code.env),
        "resources": pods.resources(code.resources, REQUESTS),
        "securityContext": pods.container_security() | {"runAsUser": USER, "runAsGroup": USER},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
    return pods.reading(rendered, code.env_from)


def volumes(spec: RLJobSpec) -> list[Manifest]:
    """Volumes of the socket, of temporary files, and of the user's modules.

    The pod waits, with an event, while the ConfigMap does not exist.
    """
    listed: list[Manifest] = [
        disk.in_memory("code-socket", disk.SMALL),
        disk.volume("code-tmp", disk.AGENT_TMP),
    ]
    if spec.code.config_map_ref is not None:
        listed.append({"name": "code", "configMap": {"name": spec.code.config_map_ref.name}})
    return listed


def reached_by(agent: Manifest) -> Manifest:
    """The agent's container with access to the socket."""
    return agent | {
        "env": [*agent["env"], {"name": env.CODE_SOCKET, "value": SOCKET}],
        "volumeMounts": [
            *agent["volumeMounts"],
            {"name": "code-socket", "mountPath": SOCKET_FOLDER},
        ],
    }
