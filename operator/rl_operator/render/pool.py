"""Renders a job's SamplerPools."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rl_contracts.spec.resources import SamplerPoolSpec
from rl_contracts.spec.workers import SamplerGroup
from rl_operator.kube import kinds, names
from rl_operator.kube.metadata import Child, Meta
from rl_operator.render.metadata import labels, owned_by, stamped

Manifest = dict[str, Any]
OPAQUE = ("podTemplate",)
"""Fields whose content is kept as the user wrote it, including empty values."""


def render(job: Meta, group: SamplerGroup, *, admitted: int | None = None) -> Manifest:
    """The SamplerPool of a group, without ``replicas``, which belongs to its autoscaler.

    ``admitted`` is the number of pods that the job's queue admits; None without a queue.
    """
    template = _without_empty(group.template.model_dump(mode="json", by_alias=True))
    limit = {} if admitted is None else {"admitted": admitted}
    return stamped(_pool(job, group, {"job": job.name, **limit, "template": template}))


def future_pool(job: Meta, group: SamplerGroup) -> tuple[Meta, SamplerPoolSpec]:
    """Name and spec of a group's pool, as its pods' templates need them before it exists."""
    meta = replace(job, name=names.pool_of(job.name, group))
    return meta, SamplerPoolSpec(job=job.name, template=group.template)


def held_back(job: Meta, pool: Child) -> Manifest:
    """An existing pool with ``admitted: 0``: its job's queue admits no pod."""
    kept = {key: value for key, value in pool.raw["spec"].items() if key == "template"}
    return stamped(_named(job, pool.meta.name, {"job": job.name, "admitted": 0, **kept}))


def _without_empty(value: Manifest) -> Manifest:
    # An empty map applied over one with keys is stored as null, which is then refused.
    pruned = {
        key: _without_empty(item) if isinstance(item, dict) and key not in OPAQUE else item
        for key, item in value.items()
    }
    return {key: item for key, item in pruned.items() if item not in (None, {}, [])}


def _pool(job: Meta, group: SamplerGroup, spec: Manifest) -> Manifest:
    return _named(job, names.pool(job.name, group.name), spec)


def _named(job: Meta, name: str, spec: Manifest) -> Manifest:
    return {
        "apiVersion": kinds.SAMPLER_POOL.api_version,
        "kind": kinds.SAMPLER_POOL.name,
        "metadata": {
            "name": name,
            "namespace": job.namespace,
            "labels": labels(job=job.name, run=job.run, component="sampler", pool=name),
            "ownerReferences": owned_by(job, kinds.RLJOB),
        },
        "spec": spec,
    }
