"""The pod that reads one Secret's stores, and the policy that lets only the operator reach it."""

from __future__ import annotations

import hashlib
from typing import Any

from rl_contracts.reader import HEALTH, PORT, TOKEN_HASH
from rl_contracts.spec.resources import GROUP
from rl_operator.kube import names
from rl_operator.kube.kinds import NETWORK_POLICY, POD
from rl_operator.kube.settings import Images
from rl_operator.render import disk, pods
from rl_operator.render.metadata import stamped

Manifest = dict[str, Any]

COMPONENT = "reader"
PREFIX = "rl-operator-reader"
GRACE_SECONDS = 120
"""A reader that is told to end goes on while it is asked: see ``rl_reader``."""
MEMORY = "256Mi"
CONTAINER = "reader"
SECRET_ANNOTATION = f"{GROUP}/stores-secret"
SYNC_ANNOTATION = f"{GROUP}/sync"
"""A change of a pod's annotation makes the kubelet refresh its volumes at once."""


def name(secret: str) -> str:
    """Name of the reader of a Secret: the Secret's own, shortened, and its digest."""
    digest = hashlib.sha256(secret.encode()).hexdigest()[:8]
    return f"{PREFIX}-{secret[:200].rstrip('-.')}-{digest}"


def pod(namespace: str, secret: str, images: Images, *, token_sha256: str) -> Manifest:
    """The reader's pod, which the ``restricted`` standard admits.

    Args:
        namespace: of the jobs and their Secret.
        secret: name of the Secret of stores; it may not exist yet.
        images: the default images.
        token_sha256: digest of the token that requests must carry; the token is in no object.
    """
    container = {
        "name": CONTAINER,
        "image": images.operator,
        "imagePullPolicy": images.pull_policy,
        "command": ["python", "-m", "rl_reader"],
        "args": [
            f"--folder={pods.STORES_FOLDER}",
            f"--namespace={namespace}",
            f"--secret={secret}",
        ],
        "env": [{"name": TOKEN_HASH, "value": token_sha256}],
        "ports": [{"name": "reader", "containerPort": PORT}],
        "readinessProbe": {
            "httpGet": {"path": HEALTH, "port": PORT},
            "periodSeconds": 2,
            "timeoutSeconds": 5,
        },
        "livenessProbe": {
            "httpGet": {"path": HEALTH, "port": PORT},
            "periodSeconds": 20,
            "timeoutSeconds": 10,
        },
        "resources": {
            # As much as an agent: on a full node the share of 10m was too little to get Ready with.
            "requests": {"cpu": "50m", "memory": "64Mi"},
            "limits": {"cpu": "1", "memory": MEMORY},
        },
        "securityContext": pods.container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "stores", "mountPath": pods.STORES_FOLDER, "readOnly": True},
            {"name": "tmp", "mountPath": pods.TMP},
        ],
    }
    stores = {"secretName": secret, "defaultMode": pods.READ_BY_GROUP, "optional": True}
    return stamped(
        {
            "apiVersion": POD.api_version,
            "kind": POD.name,
            "metadata": {
                "name": name(secret),
                "namespace": namespace,
                "labels": labels(),
                "annotations": {SECRET_ANNOTATION: secret},
            },
            "spec": {
                "containers": [container],
                "volumes": [
                    {"name": "stores", "secret": stores},
                    disk.volume("tmp", disk.READER_TMP),
                ],
                "restartPolicy": "OnFailure",  # it ends by itself when nobody asks
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "terminationGracePeriodSeconds": GRACE_SECONDS,
                "securityContext": pods.pod_security(),
                **pods.pull_secrets(images),
            },
        }
    )


def labels() -> dict[str, str]:
    """Labels of every reader."""
    return {**names.PART_OF, names.COMPONENT_LABEL: COMPONENT}


def selector() -> str:
    """The label selector of all readers."""
    return ",".join(f"{key}={value}" for key, value in labels().items())


def policy(namespace: str, *, system: str) -> Manifest:
    """The NetworkPolicy of a namespace's readers.

    Args:
        namespace: of the readers.
        system: the operator's namespace.
    """
    operator = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": system}},
        "podSelector": {
            "matchLabels": {
                "app.kubernetes.io/part-of": "rl-operator",
                "app.kubernetes.io/component": "operator",
            }
        },
    }
    return {
        "apiVersion": NETWORK_POLICY.api_version,
        "kind": NETWORK_POLICY.name,
        "metadata": {"name": PREFIX, "namespace": namespace, "labels": labels()},
        "spec": {
            "podSelector": {"matchLabels": labels()},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [operator], "ports": [{"port": PORT, "protocol": "TCP"}]}],
        },
    }
