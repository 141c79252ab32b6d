"""Whom of ours an object that is watched concerns, and which watches there must be."""

from __future__ import annotations

from typing import Any

from rl_operator import kinds, names
from rl_operator.kinds import Key
from rl_operator.settings import Settings


def keys_of(body: Any) -> list[Key]:
    """The objects of ours that an object concerns."""
    meta = body["metadata"]
    namespace, labels = meta["namespace"], meta.get("labels", {})
    job, pool = labels.get(names.JOB_LABEL), labels.get(names.POOL_LABEL)
    if body["kind"] == kinds.RLJOB.name:
        job = meta["name"]
    elif body["kind"] == kinds.SAMPLER_POOL.name:
        job, pool = body.get("spec", {}).get("job"), meta["name"]
    found = [Key(kinds.RLJOB.name, namespace, job)] if job else []
    return [*found, Key(kinds.SAMPLER_POOL.name, namespace, pool)] if pool else found


def read_with(body: Any) -> list[Key]:
    """The objects of ours of which an object is read at a look."""
    found = keys_of(body)
    if body["kind"] == kinds.RLJOB.name:
        meta = body["metadata"]
        for group in body["spec"].get("samplers", []):
            pool = names.pool(meta["name"], group["name"])
            found.append(Key(kinds.SAMPLER_POOL.name, meta["namespace"], pool))
    return found


def required_watches(settings: Settings) -> list[str]:
    """Paths of the watches that there must be; PyTorchJob may not be installed."""
    watched = (kinds.RLJOB, kinds.SAMPLER_POOL, kinds.DEPLOYMENT, kinds.POD)
    namespaces = settings.watch_namespaces
    return [
        path
        for kind in watched
        for path in ([kind.path(one) for one in namespaces] or [kind.everywhere()])
    ]
