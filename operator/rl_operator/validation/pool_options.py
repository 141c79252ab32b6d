"""Options that a shared pool, or a job that names one, cannot honour."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rl_contracts.errors import Refusal
from rl_contracts.spec.resources import OURS, RLJobSpec, SamplerPoolSpec
from rl_operator.state import pool_ref
from rl_operator.state.snapshot import Pool

CONTAINERS = re.compile(r"(agent|stage|sandbox|code)(-.*)?")
"""Containers that exist for each run, with the job's name as suffix."""
VOLUMES = re.compile(
    r"weights|tmp|code|model|engine-key|"
    r"(weights|tmp|code|code-socket|code-tmp|spec|stores|hub|sandbox|tool-.+|endpoint-.+)-[0-9]"
)
"""Volumes that exist for each run, with the run's number as suffix, and those that are shared."""


def of_several(at: str, spec: SamplerPoolSpec) -> Iterator[Refusal]:
    """Options that do not work with ``spec.maxRuns`` above 1.

    Args:
        at: path of the pool's spec, e.g. ``spec``.
        spec: of the pool.
    """
    if spec.max_runs == 1:
        return
    pod = (spec.template.pod_template or {}).get("spec") or {}
    for key in ("containers", "initContainers"):
        for index, container in enumerate(pod.get(key) or []):
            if CONTAINERS.fullmatch(container.get("name", "")):
                yield _own(f"{at}.template.podTemplate.spec.{key}[{index}].name", container["name"])
    for index, volume in enumerate(pod.get("volumes") or []):
        if VOLUMES.fullmatch(volume.get("name", "")):
            yield _own(f"{at}.template.podTemplate.spec.volumes[{index}].name", volume["name"])


def _own(field: str, name: str) -> Refusal:
    return _refusal(
        field,
        name,
        message="With spec.maxRuns above 1 the operator uses names like this for each run.",
        remedy="Use another name, or set maxRuns to 1.",
    )


def of_reference(spec: RLJobSpec, pool: Pool | None) -> Iterator[Refusal]:
    """Options of a job that do not work with the shared pool that it names.

    Args:
        spec: of the job.
        pool: that it names; None while it does not exist.
    """
    named = [index for index, group in enumerate(spec.samplers) if group.pool_ref is not None]
    if not named:
        return
    at, name = f"spec.samplers[{named[-1]}].poolRef.name", pool_ref.of(spec)
    if len(named) > 1:
        # Two jobs that each hold a pool for which the other waits would wait forever.
        yield _refusal(
            at,
            spec.samplers[named[-1]].name,
            message="A job may name at most one shared pool.",
            remedy="Give the other groups a template of their own.",
        )
    if spec.algorithm.experts.routing == "Replay":
        yield _refusal(
            "spec.algorithm.experts.routing",
            "Replay",
            message="The engine of a shared pool does not return the experts that it chose.",
            remedy="Use Own, or samplers of the job's own.",
        )
    if spec.lifecycle.cleanup_policy == "None":
        yield _refusal(
            "spec.lifecycle.cleanupPolicy",
            "None",
            message="A shared pool is released when the run ends, so no sampler can stay.",
            remedy="Use Workers or All.",
        )
    if spec.weight_sync.on_timeout == "Fail":
        yield _refusal(
            "spec.weightSync.onTimeout",
            "Fail",
            message="A shared pool's pods also serve other runs.",
            remedy="Use Recreate or Exclude, or give the group a template.",
        )
    if pool is not None and pool.spec is not None:
        yield from _of_pool(at, spec, pool, name)


def _of_pool(at: str, spec: RLJobSpec, pool: Pool, name: str) -> Iterator[Refusal]:
    if pool.spec is None or pool.spec.model is None:
        owner = pool.spec.job if pool.spec is not None else ""
        yield _refusal(
            at,
            name,
            message=f"This SamplerPool belongs to RLJob {owner} alone.",
            remedy="Name a pool that has spec.model instead of spec.job.",
        )
    elif pool.spec.managed_by != OURS:
        yield _refusal(
            at,
            name,
            message=f"This SamplerPool is managed by {pool.spec.managed_by}.",
            remedy="Name another pool, or give the group a template.",
        )
    elif pool.spec.model.uri != spec.model.uri:
        yield _refusal(
            "spec.model.uri",
            spec.model.uri[:200],
            message=f"SamplerPool {name} serves {pool.spec.model.uri}.",
            remedy="Name a pool of this model, or give the group a template.",
        )
    elif pool.spec.model.revision != spec.model.revision:
        theirs = pool.spec.model.revision or "unset"
        yield _refusal(
            "spec.model.revision",
            str(spec.model.revision)[:200],
            message=f"The revision of SamplerPool {name} is {theirs}.",
            remedy="Use the same revision, or give the group a template.",
        )
    elif pool.spec.model.tokenizer_uri != spec.model.tokenizer_uri:
        theirs = pool.spec.model.tokenizer_uri or "the model's own"
        yield _refusal(
            "spec.model.tokenizerUri",
            str(spec.model.tokenizer_uri)[:200],
            message=f"The tokenizer of SamplerPool {name} is {theirs}.",
            remedy="Name a pool of this tokenizer, or give the group a template.",
        )
    else:
        yield from of_several(f"SamplerPool {name} spec", pool.spec)


def _refusal(field: str, value: str, *, message: str, remedy: str) -> Refusal:
    return Refusal(field=field, value=value, reason="PoolRefused", message=message, remedy=remedy)
