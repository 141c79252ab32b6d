"""Sums the resources that a job's pods request."""

from __future__ import annotations

from collections.abc import Iterator

from rl_contracts.spec.base import Resources
from rl_contracts.spec.quantities import FACTORS, amount
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.status import ResourcesStatus
from rl_operator.kube import names
from rl_operator.state.snapshot import JobSnapshot

GPU = "/gpu"
"""Suffix of the resource names of GPUs."""
MOST_GPUS = 2**31 - 1
"""Largest value of the status field."""
BINARY = ("Ti", "Gi", "Mi", "Ki")


def resources(snapshot: JobSnapshot, spec: RLJobSpec, *, trainers: int) -> ResourcesStatus:
    """The sum of requests (limits where there is no request) of all pods that should exist.

    Sidecars, pods of programs and environments, and pods of a shared pool are not counted.

    Args:
        snapshot: of the job.
        spec: of the job.
        trainers: pods that the trainer should have.
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
    """Pods of each group, and the resources of each; a new pool starts at its minimum."""
    if snapshot.job.suspended:
        return
    sizes = {pool.meta.name: pool.spec.size for pool in snapshot.pools if pool.spec is not None}
    if spec.colocated:
        yield spec.trainer.replicas, spec.samplers[0].template.resources
    for group in spec.pooled:
        if group.pool_ref is None:
            least = group.template.autoscaling.min_replicas
            size = sizes.get(names.pool(snapshot.key.name, group.name), least)
            yield size, group.template.resources


def _bytes(count: int) -> str:
    """A number of bytes in the largest binary unit that gives a whole number."""
    for unit in BINARY:
        if count and count % FACTORS[unit] == 0:
            return f"{count / FACTORS[unit]:.0f}{unit}"
    return str(count)
