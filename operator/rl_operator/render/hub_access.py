"""Access of containers to the Hugging Face hub; the client in the images is offline by default."""

from __future__ import annotations

from typing import Any

from rl_contracts import env
from rl_contracts.spec.data import HUB, Hub, model_of_hub, uses_hub
from rl_contracts.spec.resources import RLJobSpec
from rl_operator.render import pods

Manifest = dict[str, Any]

FOLDER = "/etc/rl/hub"
VOLUME = "hub"
IDENTITY_SECONDS = 3600
"""Validity of the token of a service account; the kubelet renews it before."""
ONLINE = "HF_HUB_OFFLINE"
"""The images set it to 1; only jobs that use the hub set it to 0."""


def of_trainer(spec: RLJobSpec) -> bool:
    """Whether the trainer uses the hub."""
    pushes = spec.training.checkpoint.hub_repo is not None
    return pushes or uses_hub(spec.data) or model_of_hub(spec.model)


def variables(spec: RLJobSpec) -> dict[str, str]:
    """Environment variables of a container that uses the hub."""
    token = {env.HUB_TOKEN_FILE: f"{FOLDER}/token"} if _has_token(spec.data.hub) else {}
    return {ONLINE: "0", **token}


def mount() -> Manifest:
    """Mount of the token."""
    return {"name": VOLUME, "mountPath": FOLDER, "readOnly": True}


def trainer_mounts(spec: RLJobSpec) -> list[Manifest]:
    """Mounts of the trainer's container for the hub."""
    return [mount()] if of_trainer(spec) and _has_token(spec.data.hub) else []


def trainer_volumes(spec: RLJobSpec) -> list[Manifest]:
    """Volumes of the trainer's pods for the hub."""
    return _volumes(spec.data.hub) if of_trainer(spec) else []


def _has_token(hub: Hub) -> bool:
    """Whether pods have a token: of a Secret, or of their service account."""
    return hub.token_secret_ref is not None or hub.trusted_publisher is not None


def _volumes(hub: Hub) -> list[Manifest]:
    """The file ``token``: the token's key of its Secret, or a token of the pod's service account.

    The latter is for the hub alone: the API server does not take it.
    """
    if hub.trusted_publisher is not None:
        identity = {"audience": HUB, "expirationSeconds": IDENTITY_SECONDS, "path": "token"}
        sources = [{"serviceAccountToken": identity}]
        projected = {"sources": sources, "defaultMode": pods.READ_BY_GROUP}
        return [{"name": VOLUME, "projected": projected}]
    token = hub.token_secret_ref
    if token is None:
        return []
    secret = {
        "secretName": token.name,
        "items": [{"key": token.key, "path": "token"}],
        "defaultMode": pods.READ_BY_GROUP,
    }
    return [{"name": VOLUME, "secret": secret}]


def reached_by(stage: Manifest, spec: RLJobSpec) -> Manifest:
    """The init container with access to the hub; unchanged without an hf:// model."""
    if not model_of_hub(spec.model):
        return stage
    wanted = variables(spec)
    kept = [variable for variable in stage["env"] if variable["name"] not in wanted]
    mounts = [mount()] if _has_token(spec.data.hub) else []
    return stage | {
        "env": [*kept, *({"name": name, "value": value} for name, value in wanted.items())],
        "volumeMounts": [*stage["volumeMounts"], *mounts],
    }


def volumes(spec: RLJobSpec) -> list[Manifest]:
    """Volumes of a sampler pod for the hub."""
    return _volumes(spec.data.hub) if model_of_hub(spec.model) else []
