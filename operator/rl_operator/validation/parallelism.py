"""Meshes of processes that a trainer's sizes do not make."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.spec.resources import RLJobSpec


def refusals(spec: RLJobSpec) -> Iterator[Refusal]:
    """The first number of replicas that the mesh does not fit, of all that attempts may have."""
    trainer = spec.trainer
    elastic = trainer.elastic
    wanted = [trainer.replicas]
    if elastic is not None:
        wanted += range(elastic.min_replicas, elastic.max_replicas + 1)
    for replicas in dict.fromkeys(wanted):
        try:
            trainer.mesh(replicas)
        except RefusedError as error:
            yield _of(error.refusal, replicas=replicas, elastic=replicas != trainer.replicas)
            return


def _of(refusal: Refusal, *, replicas: int, elastic: bool) -> Refusal:
    if not elastic:
        return refusal
    return replace(
        refusal,
        message=f"With {replicas} replicas, which trainer.elastic allows: {refusal.message}",
        remedy="Leave fsdp out, and let the other sizes divide the processes of one replica; or "
        "remove trainer.elastic.",
    )
