"""What a container needs that asks the hub: the image's client is offline otherwise."""

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
"""The images set it: only a job that names the hub asks it for anything."""


def of_trainer(spec: RLJobSpec) -> bool:
    """Whether the trainer asks the hub."""
    pushes = spec.training.checkpoint.hub_repo is not None
    return pushes or uses_hub(spec.data) or model_of_hub(spec.model)


def token_of_trainer(spec: RLJobSpec) -> HubTokenReference | None:
    """By what token the trainer asks it, if it asks and there is one."""
    return spec.data.hub.token_secret_ref if of_trainer(spec) else None


def told(spec: RLJobSpec) -> dict[str, str]:
    """Variables of a container that asks it."""
    token = spec.data.hub.token_secret_ref
    return {ONLINE: "0", **({env.HUB_TOKEN_FILE: f"{FOLDER}/token"} if token else {})}


def mount() -> Manifest:
    """Where that container finds the token."""
    return {"name": VOLUME, "mountPath": FOLDER, "readOnly": True}


def volume(token: HubTokenReference) -> Manifest:
    """The token alone, whatever else is in its Secret."""
    secret = {
        "secretName": token.name,
        "items": [{"key": token.key, "path": "token"}],
        "defaultMode": pods.READ_BY_GROUP,
    }
    return {"name": VOLUME, "secret": secret}


def reached_by(stage: Manifest, spec: RLJobSpec) -> Manifest:
    """A sampler's init container that brings an hf:// model; the same where there is none."""
    if not model_of_hub(spec.model):
        return stage
    wanted = told(spec)
    kept = [one for one in stage["env"] if one["name"] not in wanted]
    mounts = [mount()] if spec.data.hub.token_secret_ref else []
    return stage | {
        "env": [*kept, *({"name": name, "value": value} for name, value in wanted.items())],
        "volumeMounts": [*stage["volumeMounts"], *mounts],
    }


def volumes(spec: RLJobSpec) -> list[Manifest]:
    """What a sampler's pod has for it."""
    token = spec.data.hub.token_secret_ref
    return [volume(token)] if token is not None and model_of_hub(spec.model) else []
