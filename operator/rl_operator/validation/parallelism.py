"""Meshes that a trainer's processes do not make, and what does not work on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from rl_contracts.capacity import mesh
from rl_contracts.capacity.shape import UnknownShapeError, shape_of
from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.spec import mesh_features
from rl_contracts.spec.resources import RLJobSpec


def refusals(spec: RLJobSpec) -> Iterator[Refusal]:
    """The first problem of a mesh, of all numbers of replicas that attempts may have."""
    trainer = spec.trainer
    elastic = trainer.elastic
    wanted = [trainer.replicas]
    if elastic is not None:
        wanted += range(elastic.min_replicas, elastic.max_replicas + 1)
    for replicas in dict.fromkeys(wanted):
        try:
            sizes = trainer.mesh(replicas)
        except RefusedError as error:
            yield _of(error.refusal, replicas=replicas, elastic=replicas != trainer.replicas)
            return
        if refused := next(mesh_features.refusals(spec, sizes), None):
            yield refused
            return


def of_model(spec: RLJobSpec, model: Mapping[str, Any]) -> Refusal | None:
    """What of the model the mesh does not divide; None too where its sizes are not known.

    Args:
        spec: a manifest without ``refusals``.
        model: sizes in the model's config; empty where they are not known.
    """
    try:
        shape = shape_of(model)
    except UnknownShapeError:
        return None
    low_rank = spec.training.lora
    quantization = None if low_rank is None else low_rank.quantization
    return next(mesh.refusals(shape, spec.trainer.mesh(), quantization=quantization), None)


def _of(refusal: Refusal, *, replicas: int, elastic: bool) -> Refusal:
    if not elastic:
        return refusal
    return replace(
        refusal,
        message=f"With {replicas} replicas, which trainer.elastic allows: {refusal.message}",
        remedy="Leave fsdp out, and let the other sizes divide the processes of one replica; or "
        "remove trainer.elastic.",
    )
