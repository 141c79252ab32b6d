"""The user's modules in the agent's container: a ConfigMap, mounted read-only."""

from __future__ import annotations

from typing import Any

from rl_contracts import env
from rl_contracts.spec.agent.user_code import ConfigMapReference

Manifest = dict[str, Any]

FOLDER = "/opt/code"


def volume(reference: ConfigMapReference) -> Manifest:
    """Volume of the ConfigMap; the pod waits, with an event, while it does not exist."""
    return {"name": "code", "configMap": {"name": reference.name}}


def read_by(agent: Manifest) -> Manifest:
    """The agent's container with the modules mounted."""
    return agent | {
        "env": [*agent["env"], {"name": env.CODE_FOLDER, "value": FOLDER}],
        "volumeMounts": [
            *agent["volumeMounts"],
            {"name": "code", "mountPath": FOLDER, "readOnly": True},
        ],
    }
