"""Why a SamplerPool cannot go on until somebody does something."""

from __future__ import annotations

from itertools import chain

from rl_contracts.spec.resources import SamplerPoolSpec
from rl_operator.kube import names
from rl_operator.kube.conditions import Stall
from rl_operator.state.snapshot import PoolSnapshot
from rl_operator.validation import unsupported
from rl_operator.validation.pool_options import of_several
from rl_operator.validation.refusals import of_spec, of_template


def of_shared(snapshot: PoolSnapshot, spec: SamplerPoolSpec) -> Stall | None:
    """Of a pool that jobs share."""
    job = snapshot.job
    if job is not None and job.spec is None:
        return Stall(reason="JobInvalid", message=f"RLJob {job.meta.name}: {job.spec_error}")
    # One by one: what comes later takes for granted what those before it would refuse.
    bad = chain(
        unsupported.of_pool(spec),
        of_template("spec.template", spec.template),
        of_several("spec", spec),
    )
    refusal = next(bad, None)
    return Stall.of(refusal) if refusal is not None else None


def of_own(snapshot: PoolSnapshot) -> Stall | None:
    """Of a pool that belongs to one job."""
    pool = snapshot.pool
    if pool.spec is None:
        return Stall(reason="InvalidSpec", message=pool.spec_error)
    job = snapshot.job
    if job is None:
        message = f"Namespace {pool.meta.namespace} has no RLJob {pool.spec.job}."
        return Stall(reason="JobNotFound", message=message)
    if job.spec is None:
        return Stall(reason="JobInvalid", message=f"RLJob {job.meta.name}: {job.spec_error}")
    own = (group for group in job.spec.samplers if group.pool_ref is None)
    declared = [names.pool(job.meta.name, group.name) for group in own]
    if pool.meta.owner_uid != job.meta.uid or pool.meta.name not in declared:
        message = f"RLJob {job.meta.name} declares no such pool. Add it to its spec.samplers."
        return Stall(reason="PoolNotDeclared", message=message)
    refusal = next(chain(unsupported.of_pool(pool.spec), of_spec(job.spec)), None)
    return Stall.of(refusal) if refusal is not None else None
