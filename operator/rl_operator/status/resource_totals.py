"""What a job's pods ask for together, as trainer and templates declare it."""

from __future__ import annotations

from collections.abc import Iterator

from rl_contracts.spec.base import Resources
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.status import ResourcesStatus
from rl_operator.kube import names
from rl_operator.kube.subset_diff import FACTORS, amount
from rl_operator.state.snapshot import JobSnapshot

GPU = "/gpu"
"""End of the names that vendors give their devices."""
MOST_GPUS = 2**31 - 1
"""As many as the status has room for."""
BINARY = ("Ti", "Gi", "Mi", "Ki")


def resources(snapshot: JobSnapshot, spec: RLJobSpec, *, trainers: int) -> ResourcesStatus:
    """The sum of requests, or where there is none limits, of all pods that ought to be there.

    Pods of a shared pool are not counted: they are not the job's. Nor are sidecars.

    Args:
        snapshot: what there is.
        spec: of the job.
        trainers: the trainer's pods that ought to be there.
    """
    total = {"gpus": 0.0, "cpu": 0.0, "memory": 0.0}
    for count, wanted in ((trainers, spec.trainer.resources), *_samplers(snapshot, spec)):
        for name, value in (wanted.limits | wanted.requests).items():
            key = "gpus" if name.endswith(GPU) else name
            if key in total:
                total[key] += count * amount(value)
    return ResourcesStatus(
        gpus=min(round(total["gpus"]), MOST_GPUS),
        cpu=f"{total['cpu']:.6g}",
        memory=_bytes(round(total["memory"])),
    )


def _samplers(snapshot: JobSnapshot, spec: RLJobSpec) -> Iterator[tuple[int, Resources]]:
    """Pods of each group and what one asks for; a pool that is to be made begins at its minimum."""
    if snapshot.job.suspended:
        return
    sizes = {pool.meta.name: pool.spec.size for pool in snapshot.pools if pool.spec is not None}
    for group in spec.samplers:
        if group.pool_ref is None:
            least = group.template.autoscaling.min_replicas
            size = sizes.get(names.pool(snapshot.key.name, group.name), least)
            yield size, group.template.resources


def _bytes(count: int) -> str:
    """In the largest unit of which it is a whole number."""
    for unit in BINARY:
        if count and count % FACTORS[unit] == 0:
            return f"{count / FACTORS[unit]:.0f}{unit}"
    return str(count)
