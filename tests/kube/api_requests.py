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
MERGE = "application/merge-patch+json"
MERGED = ("RLJob", "SamplerPool", "Secret", "ConfigMap")
"""Kinds without lists that kubectl would merge by their keys."""


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
    annotations = {**meta.get("annotations", {}), LAST_APPLIED: _applied(manifest)}
    body = {**manifest, "metadata": {**meta, "annotations": annotations}}
    query = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
    if dry_run:
        query["dryRun"] = "All"
    path = kind.path(meta.get("namespace", "default"))
    status, answer = requests.send("POST", path, body, query=query)
    return answer if status >= 400 else None


def change(requests: Requests, manifest: Manifest, *, dry_run: bool = False) -> Manifest | None:
    """Change an object as ``kubectl apply`` does, which removes what it does not apply any more.

    Lists are replaced as a whole: that is kubectl's way with the kinds of ``MERGED`` only.

    Returns:
        The API server's Status if it refused.
    """
    meta = manifest["metadata"]
    path = KINDS[manifest["kind"]].path(meta.get("namespace", "default"), meta["name"])
    _, live = requests.send("GET", path, {}, query={})
    last = json.loads(live["metadata"].get("annotations", {}).get(LAST_APPLIED, "{}"))
    patch = _merge(last, manifest)
    patch["metadata"].setdefault("annotations", {})[LAST_APPLIED] = _applied(manifest)
    query = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
    if dry_run:
        query["dryRun"] = "All"
    status, answer = requests.send("PATCH", path, patch, query=query, content=MERGE)
    return answer if status >= 400 else None


def _merge(last: Manifest, new: Manifest) -> Manifest:
    """A merge patch that sets all of ``new`` and removes what only ``last`` has."""
    return {key: None for key in last if key not in new} | {
        key: _merge(last[key] if isinstance(last.get(key), dict) else {}, value)
        if isinstance(value, dict)
        else value
        for key, value in new.items()
    }


def _applied(manifest: Manifest) -> str:
    return json.dumps(manifest, separators=(",", ":"), sort_keys=True) + "\n"


def patch_status(
    requests: Requests, word: str, namespace: str, name: str, status: Manifest
) -> tuple[int, Manifest]:
    """Merge into the status of an object; HTTP status and answer."""
    path = WORDS[word.lower()].path(namespace, name, "status")
    query = {"fieldManager": "kubectl-patch"}
    return requests.send("PATCH", path, {"status": status}, query=query, content=MERGE)


def delete_all(requests: Requests, kind: Kind, namespace: str, *, labels: str = "") -> None:
    """Delete the objects that a label selector matches, without waiting until they are gone.

    Without a selector all of the namespace are.
    """
    query = {"labelSelector": labels}
    status, answer = requests.send("DELETE", kind.path(namespace), {}, query=query)
    assert status < 400, answer
