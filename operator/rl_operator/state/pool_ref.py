"""A job that names a shared pool: which one, and the spec that the pool's template completes."""

from __future__ import annotations

from dataclasses import replace

from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.workers import SamplerGroup
from rl_operator.state.snapshot import Job, Pool


def of(spec: RLJobSpec | None) -> str:
    """Name of the shared pool that a spec names; empty if it names none."""
    groups = spec.samplers if spec is not None else []
    return next((group.pool_ref.name for group in groups if group.pool_ref is not None), "")


def path(spec: RLJobSpec | None) -> str:
    """Path of the field that names the shared pool."""
    groups = spec.samplers if spec is not None else []
    index = next((index for index, group in enumerate(groups) if group.pool_ref is not None), 0)
    return f"spec.samplers[{index}].poolRef.name"


def resolved(job: Job, pool: Pool | None) -> Job:
    """The job with the template of the shared pool that it names, where that pool exists."""
    if job.spec is None or pool is None or pool.spec is None or of(job.spec) != pool.meta.name:
        return job
    template = pool.spec.template
    groups = [
        sampler if sampler.pool_ref is None else sampler.resolved(template)
        for sampler in job.spec.samplers
    ]
    return replace(job, spec=job.spec.model_copy(update={"samplers": groups}))


def place(index: int, group: SamplerGroup) -> str:
    """Path of the field in which a group's template is written."""
    if group.pool_ref is not None:
        return f"SamplerPool {group.pool_ref.name} spec.template"
    return f"spec.samplers[{index}].template"
