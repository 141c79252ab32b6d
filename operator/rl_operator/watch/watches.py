"""Whom of ours an object that is watched concerns, and which watches there must be."""

from __future__ import annotations

from typing import Any

from rl_operator.kube import kinds, names
from rl_operator.kube.kinds import Key, Kind
from rl_operator.kube.settings import Settings


def keys_of(body: Any) -> list[Key]:
    """The objects of ours that an object concerns."""
    meta = body["metadata"]
    namespace, labels = meta["namespace"], meta.get("labels", {})
    job, pool = labels.get(names.JOB_LABEL), labels.get(names.POOL_LABEL)
    shared_by: list[str] = []
    if body["kind"] == kinds.RLJOB.name:
        job = meta["name"]
    elif body["kind"] == kinds.DEPLOYMENT.name:
        job = None  # its pool says what a job reads of it
    elif body["kind"] == kinds.SAMPLER_POOL.name:
        job, pool = body.get("spec", {}).get("job"), meta["name"]
        shared_by = _sharing(body.get("status", {}))
    elif body["kind"] == kinds.POD.name:
        shared_by = [one for key, one in labels.items() if key.startswith(names.BESIDE_PREFIX)]
    found = [Key(kinds.RLJOB.name, namespace, one) for one in (job, *shared_by) if one]
    return [*found, Key(kinds.SAMPLER_POOL.name, namespace, pool)] if pool else found


def _sharing(status: Any) -> list[str]:
    """Of a shared pool's status: who has it and who waits for it."""
    first = status.get("assignment") or {}
    sharing = (first, *status.get("beside", []), *status.get("waiting", []))
    return [one["job"] for one in sharing if one]


def required_watches(settings: Settings) -> list[str]:
    """Paths of the watches that there must be; those of others may not be installed."""
    watched = (kinds.RLJOB, kinds.SAMPLER_POOL, kinds.DEPLOYMENT, kinds.POD)
    return [path for kind in watched for path in paths_of(kind, settings)]


def others_kinds(settings: Settings) -> list[Kind]:
    """Kinds of other operators that are watched where they are installed."""
    return [kinds.PYTORCH_JOB, *([kinds.WORKLOAD] if settings.kueue else [])]


def paths_of(kind: Kind, settings: Settings) -> list[str]:
    """Paths of the watches of a kind."""
    return [kind.path(watch_namespace) for watch_namespace in settings.watch_namespaces] or [
        kind.everywhere()
    ]
