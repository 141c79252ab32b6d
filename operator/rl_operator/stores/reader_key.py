"""The key from which the tokens of all readers are derived: the operator's only Secret."""

from __future__ import annotations

import base64
import binascii
import secrets

from rl_operator.kube.cluster import Cluster
from rl_operator.kube.kinds import SECRET
from rl_operator.kube.names import PART_OF, SPEC_MANAGER

NAME = "rl-operator-reader-key"
KEY = "key"
BYTES = 32


def read_or_create(cluster: Cluster, namespace: str) -> bytes:
    """The key, which is created if it does not exist.

    It is created by an apply, because RBAC cannot limit a POST to a name.

    Args:
        cluster: reads and writes as the leader.
        namespace: the operator's own.
    """
    stored = cluster.get(SECRET, namespace, NAME)
    key = _key(stored)
    if key:
        return key
    key = secrets.token_bytes(BYTES)
    manifest = {
        "apiVersion": SECRET.api_version,
        "kind": SECRET.name,
        "metadata": {"name": NAME, "namespace": namespace, "labels": dict(PART_OF)},
        "type": "Opaque",
        "data": {KEY: base64.b64encode(key).decode()},
    }
    cluster.apply(SECRET, manifest, manager=SPEC_MANAGER)
    return key


def _key(stored: dict[str, object] | None) -> bytes:
    data = (stored or {}).get("data") or {}
    assert isinstance(data, dict)
    try:
        key = base64.b64decode(data.get(KEY, ""))
    except (binascii.Error, ValueError):
        return b""
    return key if len(key) >= BYTES else b""
