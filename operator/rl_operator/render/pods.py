"""Parts that trainer and sampler pods share: security, the mounted spec and stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from rl_contracts import env
from rl_contracts.spec.base import EnvironmentVariable
from rl_contracts.spec.workers import Placement
from rl_operator.kube.names import SPEC_KEY, SPEC_VOLUME
from rl_operator.kube.settings import Images

Manifest = dict[str, Any]

USER = 65532
SPEC_FOLDER = "/etc/rl/spec"
STORES_FOLDER = "/etc/rl/stores"
TMP = "/tmp"
SPEC_FILE = str(PurePosixPath(SPEC_FOLDER) / SPEC_KEY)
READ_BY_GROUP = 0o440


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


def environment(
    fixed: Mapping[str, str], extra: list[EnvironmentVariable] | None = None
) -> list[Manifest]:
    """Environment variables; the fixed ones come last and win."""
    chosen = [one.to_kubernetes() for one in extra or [] if one.name not in fixed]
    return chosen + [{"name": name, "value": value} for name, value in fixed.items()]


def reading(container: Manifest, sources: Sequence[Mapping[str, Any]]) -> Manifest:
    """One of our containers that also gets all keys of some Secrets and ConfigMaps.

    None of them is read in place of a variable that our programs may be without: these are there,
    and empty.
    """
    if not sources:
        return container
    there = {one["name"] for one in container["env"]}
    empty = [{"name": name} for name in env.OPTIONAL if name not in there]
    return container | {
        "env": [*container["env"], *empty],
        "envFrom": [dict(source) for source in sources],
    }


def pull_secrets(images: Images) -> Manifest:
    """What a pod spec says of the Secrets that its images are pulled by; nothing without any."""
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
    """Where those volumes appear."""
    return [
        {"name": SPEC_VOLUME, "mountPath": SPEC_FOLDER, "readOnly": True},
        {"name": "stores", "mountPath": STORES_FOLDER, "readOnly": True},
    ]


def placed(pod: Manifest, placement: Placement, *, like: Mapping[str, str]) -> Manifest:
    """A pod spec with its user's wishes about nodes; unset ones are left out.

    Args:
        pod: the spec without them.
        placement: the wishes.
        like: labels of the pods that spread constraints without a selector count.
    """
    selector = {"labelSelector": {"matchLabels": dict(like)}}
    wishes = {
        "nodeSelector": dict(placement.node_selector),
        "tolerations": [dict(toleration) for toleration in placement.tolerations],
        "topologySpreadConstraints": [{**selector, **one} for one in placement.topology_spread],
        "priorityClassName": placement.priority_class_name,
        "serviceAccountName": placement.service_account_name,
    }
    return pod | {key: value for key, value in wishes.items() if value}


def probe(path: str, port: int, *, delay: int, period: int, failures: int) -> Manifest:
    """A probe by HTTP; ``delay`` and ``period`` in seconds."""
    return {
        "httpGet": {"path": path, "port": port},
        "initialDelaySeconds": delay,
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
