"""Access of containers to the Hugging Face hub; the client in the images is offline by default."""

from __future__ import annotations

from typing import Any

from rl_contracts import env
from rl_contracts.spec.data import HubTokenReference, model_of_hub, uses_hub
from rl_contracts.spec.resources import RLJobSpec
from rl_operator.render import pods

Manifest = dict[str, Any]

FOLDER = "/etc/rl/hub"
VOLUME = "hub"
ONLINE = "HF_HUB_OFFLINE"
"""The images set it to 1; only jobs that use the hub set it to 0."""


def of_trainer(spec: RLJobSpec) -> bool:
    """Whether the trainer uses the hub."""
    pushes = spec.training.checkpoint.hub_repo is not None
    return pushes or uses_hub(spec.data) or model_of_hub(spec.model)


def token_of_trainer(spec: RLJobSpec) -> HubTokenReference | None:
    """The token with which the trainer uses the hub; None without one."""
    return spec.data.hub.token_secret_ref if of_trainer(spec) else None


def variables(spec: RLJobSpec) -> dict[str, str]:
    """Environment variables of a container that uses the hub."""
    token = spec.data.hub.token_secret_ref
    return {ONLINE: "0", **({env.HUB_TOKEN_FILE: f"{FOLDER}/token"} if token else {})}


def mount() -> Manifest:
    """Mount of the token."""
    return {"name": VOLUME, "mountPath": FOLDER, "readOnly": True}


def volume(token: HubTokenReference) -> Manifest:
    """Volume with the token's key of its Secret, and no other key."""
    secret = {
        "secretName": token.name,
        "items": [{"key": token.key, "path": "token"}],
        "defaultMode": pods.READ_BY_GROUP,
    }
    return {"name": VOLUME, "secret": secret}


def reached_by(stage: Manifest, spec: RLJobSpec) -> Manifest:
    """The init container with access to the hub; unchanged without an hf:// model."""
    if not model_of_hub(spec.model):
        return stage
    wanted = variables(spec)
    kept = [variable for variable in stage["env"] if variable["name"] not in wanted]
    mounts = [mount()] if spec.data.hub.token_secret_ref else []
    return stage | {
        "env": [*kept, *({"name": name, "value": value} for name, value in wanted.items())],
        "volumeMounts": [*stage["volumeMounts"], *mounts],
    }


def volumes(spec: RLJobSpec) -> list[Manifest]:
    """Volumes of a sampler pod for the hub."""
    token = spec.data.hub.token_secret_ref
    return [volume(token)] if token is not None and model_of_hub(spec.model) else []
