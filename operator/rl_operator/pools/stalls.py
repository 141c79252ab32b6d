"""Why a SamplerPool cannot be reconciled until somebody acts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from rl_contracts.errors import Refusal
from rl_contracts.spec.resources import SamplerPoolSpec
from rl_operator.kube import names
from rl_operator.kube.conditions import Stall
from rl_operator.kube.settings import JobRules
from rl_operator.state.snapshot import Job, PoolSnapshot
from rl_operator.validation.pool_options import of_several
from rl_operator.validation.refusals import of_spec, of_template


def of_shared(snapshot: PoolSnapshot, spec: SamplerPoolSpec, rules: JobRules) -> Stall | None:
    """The stall of a pool that jobs share; None where there is none."""
    for job in snapshot.served:  # its pods cannot be rendered without any of them
        if job.spec is None:
            first = job is snapshot.job
            return Stall.of(_invalid(job, "status.assignment.job" if first else "status.beside"))
    # One by one: a later check relies on what an earlier one would refuse.
    refusals = chain(
        of_template("spec.template", spec.template, rules),
        of_several("spec", spec),
    )
    return _first(refusals)


def of_own(snapshot: PoolSnapshot, rules: JobRules) -> Stall | None:
    """The stall of a pool that belongs to one job; None where there is none."""
    pool, job = snapshot.pool, snapshot.job
    if pool.spec is None:
        return Stall(reason="InvalidSpec", message=pool.spec_error)
    if job is None:
        return Stall.of(
            Refusal(
                field="spec.job",
                value=str(pool.spec.job),
                reason="JobNotFound",
                message=f"Namespace {pool.meta.namespace} has no RLJob of this name.",
                remedy="Create it, or delete this pool.",
            )
        )
    if job.spec is None:
        return Stall.of(_invalid(job, "spec.job"))
    groups = (group for group in job.spec.pooled if group.pool_ref is None)
    declared = [names.pool(job.meta.name, group.name) for group in groups]
    if pool.meta.owner_uid != job.meta.uid or pool.meta.name not in declared:
        return Stall.of(
            Refusal(
                field="spec.job",
                value=job.meta.name,
                reason="PoolNotDeclared",
                message=f"This RLJob declares no pool {pool.meta.name}.",
                remedy="Add the group to spec.samplers of the RLJob, or delete this pool.",
            )
        )
    return _first(of_spec(job.spec, rules, started=job.started))


def _first(refusals: Iterator[Refusal]) -> Stall | None:
    refusal = next(refusals, None)
    return Stall.of(refusal) if refusal is not None else None


def _invalid(job: Job, field: str) -> Refusal:
    return Refusal(
        field=field,
        value=job.meta.name,
        reason="JobInvalid",
        message=f"The spec of this RLJob is not valid: {job.spec_error}",
        remedy="The pool continues once the RLJob is corrected.",
    )
