"""Parts common to trainer and sampler pods: security, environment, spec and store volumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from rl_contracts import env
from rl_contracts.spec.base import EnvironmentVariable, Resources
from rl_contracts.spec.workers import Placement, SamplerTemplate
from rl_operator.kube.names import SPEC_KEY, SPEC_VOLUME
from rl_operator.kube.settings import Images

Manifest = dict[str, Any]

USER = 65532
SPEC_FOLDER = "/etc/rl/spec"
STORES_FOLDER = "/etc/rl/stores"
TMP = "/tmp"
SPEC_FILE = str(PurePosixPath(SPEC_FOLDER) / SPEC_KEY)
READ_BY_GROUP = 0o440


def sampler_image(template: SamplerTemplate, images: Images) -> str:
    """Image of a pool's agents, which programs without an image of their own have too."""
    return template.image or images.sampler


def pod_security() -> Manifest:
    """Pod security context that the ``restricted`` standard accepts."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> Manifest:
    """Container security context that the ``restricted`` standard accepts, root read-only."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def resources(section: Resources, default: Mapping[str, str]) -> Manifest:
    """A container's resources: what has a limit and no request is requested up to its limit.

    Args:
        section: what the manifest says.
        default: what is requested otherwise.
    """
    unset = {name: value for name, value in default.items() if name not in section.limits}
    return ({"requests": unset} if unset else {}) | section.to_kubernetes()


def environment(
    fixed: Mapping[str, str], extra: list[EnvironmentVariable] | None = None
) -> list[Manifest]:
    """Environment variables; ``fixed`` come last and win over ``extra``."""
    chosen = [variable.to_kubernetes() for variable in extra or [] if variable.name not in fixed]
    return chosen + [{"name": name, "value": value} for name, value in fixed.items()]


def reading(container: Manifest, sources: Sequence[Mapping[str, Any]]) -> Manifest:
    """The container with all keys of some Secrets and ConfigMaps as environment (``envFrom``).

    Optional variables of our own programs are set to empty, so that no such key can set them.
    """
    if not sources:
        return container
    present = {variable["name"] for variable in container["env"]}
    empty = [{"name": name} for name in env.OPTIONAL if name not in present]
    return container | {
        "env": [*container["env"], *empty],
        "envFrom": [dict(source) for source in sources],
    }


def pull_secrets(images: Images) -> Manifest:
    """The ``imagePullSecrets`` of a pod spec; empty without any."""
    if not images.pull_secrets:
        return {}
    return {"imagePullSecrets": [{"name": name} for name in images.pull_secrets]}


def spec_volumes(*, config: str, secret: str) -> list[Manifest]:
    """Volumes with the job's spec and the stores' settings."""
    return [
        {"name": SPEC_VOLUME, "configMap": {"name": config, "defaultMode": READ_BY_GROUP}},
        {"name": "stores", "secret": {"secretName": secret, "defaultMode": READ_BY_GROUP}},
    ]


def spec_mounts() -> list[Manifest]:
    """Mounts of these volumes."""
    return [
        {"name": SPEC_VOLUME, "mountPath": SPEC_FOLDER, "readOnly": True},
        {"name": "stores", "mountPath": STORES_FOLDER, "readOnly": True},
    ]


def placed(pod: Manifest, placement: Placement, *, like: Mapping[str, str]) -> Manifest:
    """A pod spec with the user's placement; unset fields are left out.

    Args:
        pod: the spec without placement.
        placement: of the user.
        like: selector of spread constraints that have none.
    """
    selector = {"labelSelector": {"matchLabels": dict(like)}}
    wishes = {
        "nodeSelector": dict(placement.node_selector),
        "tolerations": [dict(toleration) for toleration in placement.tolerations],
        "topologySpreadConstraints": [
            {**selector, **constraint} for constraint in placement.topology_spread
        ],
        "priorityClassName": placement.priority_class_name,
        "serviceAccountName": placement.service_account_name,
    }
    return pod | {key: value for key, value in wishes.items() if value}


def probe(path: str, port: int, *, delay: int, period: int, failures: int) -> Manifest:
    """An HTTP probe; ``delay`` and ``period`` in seconds."""
    return {
        "httpGet": {"path": path, "port": port},
        "initialDelaySeconds": delay,
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
