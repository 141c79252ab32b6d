"""All objects that an RLJob ought to have, and those that it ought not to have any more."""

from __future__ import annotations

from rl_contracts.spec.resources import RLJobSpec
from rl_operator import attempts, kinds, names
from rl_operator.desired import objects, pool, trainer
from rl_operator.plan import Wanted
from rl_operator.settings import Images
from rl_operator.snapshot import Child, JobSnapshot

KEPT_ATTEMPTS = 1
"""Ended job objects before the current one that stay for their logs."""


def wanted(
    snapshot: JobSnapshot, spec: RLJobSpec, *, checked: bool, run_trainer: bool, images: Images
) -> list[Wanted]:
    """Objects of a job that is not over, in the order in which they are made.

    Args:
        snapshot: what is there.
        spec: of the job.
        checked: inputs are in order, so that samplers may be started.
        run_trainer: the status's attempt is under way.
        images: for pods that name none.
    """
    meta, status = snapshot.job.meta, snapshot.job.status
    found = [Wanted(manifest=objects.spec_config(meta, spec))]
    if checked or status.attempt or snapshot.pools:
        found.append(Wanted(manifest=objects.network_policy(meta)))
        found += [
            Wanted(manifest=pool.render(meta, one), first_form=pool.first_form(meta, one))
            for one in spec.samplers
        ]
    if run_trainer:
        manifest = trainer.render(meta, spec, attempt=status.attempt, images=images)
        found.append(Wanted(manifest=manifest, keep_as_created=True))
    return found


def unwanted(snapshot: JobSnapshot, spec: RLJobSpec | None) -> list[Child]:
    """Pools without a group, trainers that have ended or were given up, all but the last ones."""
    job = snapshot.job
    groups = [] if spec is None or job.finished else [one.name for one in spec.samplers]
    wanted_pools = {names.pool(job.meta.name, group) for group in groups}
    of_pools = [
        child
        for (kind, name), child in snapshot.children.items()
        if kind == kinds.SAMPLER_POOL.name and name not in wanted_pools
    ]
    return of_pools + _old_trainers(snapshot)


def _old_trainers(snapshot: JobSnapshot) -> list[Child]:
    status = snapshot.job.status
    over = snapshot.job.finished or attempts.ended(status)
    old = [
        one
        for one in snapshot.trainers
        if one.attempt < status.attempt - KEPT_ATTEMPTS
        or (one.state == "Active" and (one.attempt < status.attempt or over))
    ]
    return [snapshot.children[(kinds.PYTORCH_JOB.name, one.name)] for one in old]
