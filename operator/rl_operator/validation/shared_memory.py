"""Shared memory of trainer pods with GPUs: NCCL fails where it gets none."""

from __future__ import annotations

from collections.abc import Iterator

from rl_contracts.errors import Refusal
from rl_contracts.spec.quantities import amount
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.workers import Trainer
from rl_operator.render import disk, overrides


def refusals(spec: RLJobSpec) -> Iterator[Refusal]:
    """A memory limit that leaves nothing beside the shared memory, which counts against it.

    The kubelet makes the volume no larger than the limit, so NCCL would fail in a started pod.
    Processes without GPUs send each other nothing that way.
    """
    trainer = spec.trainer
    limit, shared = trainer.resources.limits.get("memory"), disk.ranks_memory_gib(trainer)
    if limit is None or not trainer.gpus or not shared or _replaced(trainer):
        return
    if amount(limit) <= shared * disk.GIB:
        yield Refusal(
            field="spec.trainer.resources.limits.memory",
            value=str(limit),
            reason="SharedMemoryTooSmall",
            message=f"NCCL gets {shared} GiB of shared memory in each trainer pod "
            f"({disk.RANK_GIB} GiB for each of {trainer.processes} processes), which counts "
            "against this limit and leaves nothing for the training.",
            remedy=f"Raise it well above {shared}Gi, or put a smaller volume named "
            f"{disk.RANKS_MEMORY} into spec.trainer.podTemplate.",
        )


def _replaced(trainer: Trainer) -> bool:
    template = trainer.pod_template
    if any(overrides.refusals("", template)):
        return True  # it may have any form, and is refused for that
    pod = (template or {}).get("spec") or {}
    return any(volume["name"] == disk.RANKS_MEMORY for volume in pod.get("volumes") or [])
