"""A job that names a shared pool: what it means for its spec, and what of it cannot be honoured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rl_contracts.errors import Refusal
from rl_contracts.spec.resources import OURS, RLJobSpec
from rl_contracts.spec.workers import SamplerGroup
from rl_operator.state.snapshot import Job, Pool
from rl_operator.validation.shared_options import of_several


def of(spec: RLJobSpec | None) -> str:
    """Name of the shared pool that a spec names; empty if it names none."""
    groups = spec.samplers if spec is not None else []
    return next((group.pool_ref.name for group in groups if group.pool_ref is not None), "")


def resolved(job: Job, pool: Pool | None) -> Job:
    """The job with the template of the shared pool that it names, where that is there."""
    if job.spec is None or pool is None or pool.spec is None or of(job.spec) != pool.meta.name:
        return job
    template = pool.spec.template
    groups = [
        sampler if sampler.pool_ref is None else sampler.resolved(template)
        for sampler in job.spec.samplers
    ]
    return replace(job, spec=job.spec.model_copy(update={"samplers": groups}))


def place(index: int, group: SamplerGroup) -> str:
    """Where a group's template was written."""
    if group.pool_ref is not None:
        return f"SamplerPool {group.pool_ref.name} spec.template"
    return f"spec.samplers[{index}].template"


def refusals(spec: RLJobSpec, pool: Pool | None) -> Iterator[Refusal]:
    """What of a job does not go with the shared pool that it names.

    Args:
        spec: of the job.
        pool: that it names; None while there is none, which is waited for.
    """
    named = [index for index, one in enumerate(spec.samplers) if one.pool_ref is not None]
    if not named:
        return
    at, name = f"spec.samplers[{named[-1]}].poolRef.name", of(spec)
    if len(named) > 1:
        # Two jobs that each have one of the pools that the other waits for would wait for ever.
        yield Refusal(
            field=at,
            value=spec.samplers[named[-1]].name,
            reason="PoolRefused",
            message="A job shares one pool at most.",
            remedy="Give the other groups a template of their own.",
        )
    if spec.lifecycle.cleanup_policy == "None":
        yield Refusal(
            field="spec.lifecycle.cleanupPolicy",
            value="None",
            reason="PoolRefused",
            message="A shared pool is handed on when the run ends, so no sampler can stay.",
            remedy="Use Workers or All.",
        )
    if spec.weight_sync.on_timeout == "Fail":
        yield Refusal(
            field="spec.weightSync.onTimeout",
            value="Fail",
            reason="PoolRefused",
            message="Pods of a shared pool are not this run's alone.",
            remedy="Use Recreate or Exclude, or give the group a template.",
        )
    if pool is not None and pool.spec is not None:
        yield from _of_pool(at, spec, pool, name)


def _of_pool(at: str, spec: RLJobSpec, pool: Pool, name: str) -> Iterator[Refusal]:
    if pool.spec is None or pool.spec.model is None:
        owner = pool.spec.job if pool.spec is not None else ""
        yield Refusal(
            field=at,
            value=name,
            reason="PoolRefused",
            message=f"This SamplerPool is RLJob {owner}'s own.",
            remedy="Name one that has spec.model in place of spec.job.",
        )
    elif pool.spec.managed_by != OURS:
        yield Refusal(
            field=at,
            value=name,
            reason="PoolRefused",
            message=f"This SamplerPool is managed by {pool.spec.managed_by}.",
            remedy="Name another one, or give the group a template.",
        )
    elif pool.spec.model.uri != spec.model.uri:
        yield Refusal(
            field="spec.model.uri",
            value=spec.model.uri[:200],
            reason="PoolRefused",
            message=f"SamplerPool {name} is for {pool.spec.model.uri}.",
            remedy="Name a pool of this model, or give the group a template.",
        )
    elif pool.spec.model.revision != spec.model.revision:
        theirs = pool.spec.model.revision or "unset"
        yield Refusal(
            field="spec.model.revision",
            value=str(spec.model.revision)[:200],
            reason="PoolRefused",
            message=f"The revision of SamplerPool {name} is {theirs}.",
            remedy="Write the same one, or give the group a template.",
        )
    elif pool.spec.model.tokenizer_uri != spec.model.tokenizer_uri:
        theirs = pool.spec.model.tokenizer_uri or "the model's own"
        yield Refusal(
            field="spec.model.tokenizerUri",
            value=str(spec.model.tokenizer_uri)[:200],
            reason="PoolRefused",
            message=f"The tokenizer of SamplerPool {name} is {theirs}.",
            remedy="Name a pool of this tokenizer, or give the group a template.",
        )
    else:
        yield from of_several(f"SamplerPool {name} spec", pool.spec)
