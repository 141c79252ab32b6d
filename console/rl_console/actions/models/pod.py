"""Pods that work with a job's model, within the *restricted* standard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rl_console.actions.models.choice import Choice
from rl_contracts import env
from rl_contracts.spec.resources import GROUP
from rl_contracts.spec.status import ImagesStatus

Manifest = dict[str, Any]

USER = 65532
SPEC_ANNOTATION = f"{GROUP}/spec-of-job"
SPEC_FOLDER, STORES_FOLDER, WEIGHTS_FOLDER, TMP = (
    "/etc/rl/spec",
    "/etc/rl/stores",
    "/weights",
    "/tmp",
)
ENGINE_PORT, LISTEN_PORT = 30000, 8080
MODEL_DISK = "512Gi"
"""Limit of the volume with the model, its base and the deltas between them; only what is written
counts."""
REQUESTS = {"cpu": "100m", "memory": "256Mi"}
SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


def container(
    name: str, choice: Choice, images: ImagesStatus, arguments: Sequence[str]
) -> Manifest:
    """A container with a program of the sampler's image."""
    own = {"name": env.POD_NAME, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    uid = {"name": env.POD_UID, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
    fixed = [{"name": key, "value": value} for key, value in _variables(choice).items()]
    return {
        "name": name,
        "image": images.sampler,
        **pulled(images),
        "command": ["python", "-m", "rl_sampler.models"],
        "args": list(arguments),
        "env": [*fixed, own, uid],
        "resources": {"requests": dict(REQUESTS)},
        "securityContext": SECURITY,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "spec", "mountPath": SPEC_FOLDER, "readOnly": True},
            {"name": "stores", "mountPath": STORES_FOLDER, "readOnly": True},
            {"name": "weights", "mountPath": WEIGHTS_FOLDER},
            {"name": "tmp", "mountPath": TMP},
        ],
    }


def _variables(choice: Choice) -> dict[str, str]:
    """As of a sampler pod; those that only serving needs have values that are not used."""
    return {
        env.NAMESPACE: choice.job.namespace,
        env.JOB: choice.job.name,
        env.RUN: choice.job.run,
        env.POOL: "model",
        env.SPEC_FILE: f"{SPEC_FOLDER}/spec.json",
        env.STORES_FOLDER: STORES_FOLDER,
        env.WEIGHTS_FOLDER: WEIGHTS_FOLDER,
        env.ENGINE_URL: f"http://127.0.0.1:{ENGINE_PORT}",
        env.LISTEN_PORT: str(LISTEN_PORT),
        env.DRAIN_SECONDS: "0",
        env.TOOL_SECRETS_FOLDER: "/nowhere",
        env.ENDPOINT_SECRETS_FOLDER: "/nowhere",
        "HOME": TMP,
    }


def pulled(images: ImagesStatus) -> Manifest:
    """How a container's image is pulled."""
    return {"imagePullPolicy": images.pull_policy} if images.pull_policy else {}


def template(choice: Choice, images: ImagesStatus, **containers: Sequence[Manifest]) -> Manifest:
    """A pod template.

    Args:
        choice: the model, whose job's spec and Secret are mounted.
        images: have the pull Secrets.
        containers: ``containers``, and ``initContainers`` where there are any.
    """
    secrets = [{"name": name} for name in images.pull_secrets]
    place = {"path": "spec.json", "fieldRef": {"fieldPath": _annotation(SPEC_ANNOTATION)}}
    return {
        "metadata": {"labels": choice.labels, "annotations": {SPEC_ANNOTATION: choice.spec_text}},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            **({"imagePullSecrets": secrets} if secrets else {}),
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "fsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            **{key: list(value) for key, value in containers.items()},
            "volumes": [
                {"name": "spec", "downwardAPI": {"items": [place]}},
                {"name": "stores", "secret": {"secretName": choice.secret, "defaultMode": 0o440}},
                {"name": "weights", "emptyDir": {"sizeLimit": MODEL_DISK}},
                {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
            ],
        },
    }


def _annotation(name: str) -> str:
    return f"metadata.annotations['{name}']"
