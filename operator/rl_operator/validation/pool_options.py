"""Options of a pool that serves several runs at once which it could not honour: refused by name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rl_contracts.errors import Refusal
from rl_contracts.spec.resources import OURS, RLJobSpec, SamplerPoolSpec
from rl_operator.state import pool_ref
from rl_operator.state.snapshot import Pool

CONTAINERS = re.compile(r"(agent|stage|sandbox)(-.*)?")
"""Those that there are for each run, under names of their own with its job's behind."""
VOLUMES = re.compile(
    r"weights|tmp|code|model|"
    r"(weights|tmp|code|spec|stores|hub|sandbox|tool-.+|endpoint-.+)-[0-9]"
)
"""Likewise, with the run's place at the engine behind; and the one that they share."""


def of_several(at: str, spec: SamplerPoolSpec) -> Iterator[Refusal]:
    """What does not go with ``spec.maxRuns`` above 1.

    Args:
        at: where the pool's spec was written, e.g. ``spec``.
        spec: of the pool.
    """
    if spec.max_runs == 1:
        return
    scaling = spec.template.autoscaling
    if scaling.mode == "Builtin":
        yield Refusal(
            field=f"{at}.template.autoscaling.mode",
            value=scaling.mode,
            reason="PoolRefused",
            message="It is judged by what one run has shown; with spec.maxRuns above 1 there are "
            "several.",
            remedy="Use mode None, and /scale, which an HPA or KEDA may set; or maxRuns 1.",
        )
    pod = (spec.template.pod_template or {}).get("spec") or {}
    for key in ("containers", "initContainers"):
        for index, one in enumerate(pod.get(key) or []):
            if CONTAINERS.fullmatch(one.get("name", "")):
                yield _own(f"{at}.template.podTemplate.spec.{key}[{index}].name", one["name"])
    for index, one in enumerate(pod.get("volumes") or []):
        if VOLUMES.fullmatch(one.get("name", "")):
            yield _own(f"{at}.template.podTemplate.spec.volumes[{index}].name", one["name"])


def _own(field: str, name: str) -> Refusal:
    return Refusal(
        field=field,
        value=name,
        reason="PoolRefused",
        message="With spec.maxRuns above 1 each run has one of its own, under a name like this.",
        remedy="Remove it, name it otherwise, or set maxRuns to 1.",
    )


def of_reference(spec: RLJobSpec, pool: Pool | None) -> Iterator[Refusal]:
    """What of a job does not go with the shared pool that it names.

    Args:
        spec: of the job.
        pool: that it names; None while there is none, which is waited for.
    """
    named = [index for index, one in enumerate(spec.samplers) if one.pool_ref is not None]
    if not named:
        return
    at, name = f"spec.samplers[{named[-1]}].poolRef.name", pool_ref.of(spec)
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
