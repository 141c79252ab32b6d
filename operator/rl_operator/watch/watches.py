"""Which jobs and pools a watched object concerns, and which watches the operator needs."""

from __future__ import annotations

from typing import Any

from rl_operator.kube import kinds, names
from rl_operator.kube.kinds import Key, Kind
from rl_operator.kube.settings import Settings

OF_POOLS = (kinds.DEPLOYMENT.name, kinds.SANDBOX_WARM_POOL.name, kinds.SANDBOX_CLAIM.name)
"""Kinds of objects of which a job reads nothing: it reads its pool's status instead."""


def keys_of(body: Any) -> list[Key]:
    """Keys of the jobs and pools that a watched object concerns."""
    meta = body["metadata"]
    namespace, labels = meta["namespace"], meta.get("labels", {})
    job, pool = labels.get(names.JOB_LABEL), labels.get(names.POOL_LABEL)
    shared_by: list[str] = []
    if body["kind"] == kinds.RLJOB.name:
        job = meta["name"]
    elif body["kind"] in OF_POOLS:
        job = None
    elif body["kind"] == kinds.SAMPLER_POOL.name:
        job, pool = body.get("spec", {}).get("job"), meta["name"]
        shared_by = _sharing(body.get("status", {}))
    elif body["kind"] == kinds.POD.name and names.PROGRAMS_LABEL in labels:
        job, pool = None, labels[names.PROGRAMS_LABEL]  # such a pod ends with each episode
    elif body["kind"] == kinds.POD.name and names.ENVIRONMENTS_LABEL in labels:
        job, pool = None, None  # samplers say of them what a job should know
    elif body["kind"] == kinds.POD.name:
        shared_by = [name for key, name in labels.items() if key.startswith(names.BESIDE_PREFIX)]
    keys = [Key(kinds.RLJOB.name, namespace, name) for name in (job, *shared_by) if name]
    return [*keys, Key(kinds.SAMPLER_POOL.name, namespace, pool)] if pool else keys


def _sharing(status: Any) -> list[str]:
    """Names of the jobs that a shared pool serves, or that wait for it, by its status."""
    first = status.get("assignment") or {}
    entries = (first, *status.get("beside", []), *status.get("waiting", []))
    return [entry["job"] for entry in entries if entry]


def required_watches(settings: Settings) -> list[str]:
    """Paths of the watches that must exist. Kinds of other operators may not be installed."""
    watched = (kinds.RLJOB, kinds.SAMPLER_POOL, kinds.DEPLOYMENT, kinds.POD)
    return [path for kind in watched for path in paths_of(kind, settings)]


def others_kinds(settings: Settings) -> list[Kind]:
    """Kinds of other operators that are watched if they are installed."""
    sandboxes = (kinds.SANDBOX_WARM_POOL, kinds.SANDBOX_CLAIM)
    return [
        kinds.PYTORCH_JOB,
        *([kinds.WORKLOAD] if settings.kueue else []),
        *(sandboxes if settings.rules.agent_sandbox else ()),
    ]


def paths_of(kind: Kind, settings: Settings) -> list[str]:
    """Paths of the watches of a kind: one per watched namespace, or one for the cluster."""
    return [kind.path(watch_namespace) for watch_namespace in settings.watch_namespaces] or [
        kind.everywhere()
    ]
