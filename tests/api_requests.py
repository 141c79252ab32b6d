"""What kubectl would send for a new object or a status, without a process for each request.

A kubectl takes a tenth of a second of processor time to start, and tests write thousands of
objects. What a user sees of kubectl itself is tested with kubectl: ``ApiServer.kubectl``.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import urllib3

from rl_operator.kube import kinds
from rl_operator.kube.kinds import Kind
from tests.waiting import HUNG_SECONDS

Manifest = dict[str, Any]
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
MANAGER = "kubectl-client-side-apply"
NAMESPACE = Kind("v1", "namespaces", "Namespace", namespaced=False)
_OPERATORS = (kind for kind in vars(kinds).values() if isinstance(kind, Kind))
KINDS = {kind.name: kind for kind in (NAMESPACE, *_OPERATORS)}
SHORT = {"pdb": kinds.DISRUPTION_BUDGET, "spool": kinds.SAMPLER_POOL}
WORDS = {kind.name.lower(): kind for kind in KINDS.values()} | SHORT
"""As kubectl takes them, in lower case."""
EXISTS = "AlreadyExists"


class Requests:
    """Connections of the administrator to one API server."""

    def __init__(self, url: str, *, token: str, certificate: str) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"}
        self._pool = urllib3.PoolManager(ca_certs=certificate, timeout=HUNG_SECONDS, retries=False)

    def send(
        self,
        method: str,
        path: str,
        body: Manifest,
        *,
        query: Mapping[str, str],
        content: str = "application/json",
    ) -> tuple[int, Manifest]:
        """HTTP status and answer."""
        answer = self._pool.request(
            method,
            f"{self._url}{path}?{urlencode(query)}",
            body=json.dumps(body),
            headers=self._headers | {"Content-Type": content},
        )
        return answer.status, answer.json()


requests_to = functools.cache(Requests)


def create(requests: Requests, manifest: Manifest, *, dry_run: bool = False) -> Manifest | None:
    """Create an object as ``kubectl apply`` does the first time.

    Returns:
        The API server's Status if it refused, its reason ``AlreadyExists`` among the reasons; None
        if it created the object.
    """
    kind, meta = KINDS[manifest["kind"]], manifest["metadata"]
    applied = json.dumps(manifest, separators=(",", ":"), sort_keys=True) + "\n"
    annotations = {**meta.get("annotations", {}), LAST_APPLIED: applied}
    body = {**manifest, "metadata": {**meta, "annotations": annotations}}
    query = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
    if dry_run:
        query["dryRun"] = "All"
    path = kind.path(meta.get("namespace", "default"))
    status, answer = requests.send("POST", path, body, query=query)
    return answer if status >= 400 else None


def patch_status(
    requests: Requests, word: str, namespace: str, name: str, status: Manifest
) -> tuple[int, Manifest]:
    """Merge into the status of an object; HTTP status and answer."""
    path = WORDS[word.lower()].path(namespace, name, "status")
    query = {"fieldManager": "kubectl-patch"}
    merge = "application/merge-patch+json"
    return requests.send("PATCH", path, {"status": status}, query=query, content=merge)


def delete_all(requests: Requests, kind: Kind, namespace: str, *, labels: str) -> None:
    """Delete the objects that a label selector matches, without waiting until they are gone."""
    query = {"labelSelector": labels}
    status, answer = requests.send("DELETE", kind.path(namespace), {}, query=query)
    assert status < 400, answer
