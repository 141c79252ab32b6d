"""How a trainer's processes divide a model and its data: one mesh with named axes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.spec.base import Model

SECTION = "spec.trainer.parallelism"
AXES = ("pp", "replicate", "fsdp", "cp", "tp")
"""Axes of the mesh, outermost first: ranks that differ in ``tp`` alone are neighbours."""
UNBUILT = {"pp": "pipelines of stages of layers"}
"""Axes that this release cannot honour, and what each would be."""

Size = Annotated[int, Field(ge=1, le=4096)] | None


class Parallelism(Model):
    """How the trainer's processes divide the work.

    The product of all sizes but ep is the number of processes.
    """

    replicate: Size = None
    """Copies of the model. Unset: 1, or with fsdp set as many as the processes make."""
    fsdp: Size = None
    """Processes that divide each copy's weights, gradients and moments (FSDP2). Unset: all that
    the other sizes leave."""
    tp: Size = None
    """Processes that compute each layer together (tensor parallel). Unset: 1."""
    cp: Size = None
    """Processes that share each sequence (context parallel). Unset: 1."""
    pp: Size = None
    """Stages of layers (pipeline parallel). Unset: 1."""
    ep: Size = None
    """Processes, of those of fsdp, cp and tp, that divide each layer's experts. Unset: 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshSizes:
    """Sizes of the mesh's axes, each ≥ 1."""

    replicate: int = 1
    fsdp: int = 1
    tp: int = 1
    cp: int = 1
    pp: int = 1
    ep: int = 1
    """Not a factor: the experts' own division of the fsdp × cp × tp processes."""

    @property
    def processes(self) -> int:
        """Of the whole trainer."""
        return math.prod(getattr(self, axis) for axis in AXES)

    @property
    def data_ranks(self) -> int:
        """Shares into which each batch is divided."""
        return self.replicate * self.fsdp

    @property
    def experts_fsdp(self) -> int:
        """Processes that hold the same experts and divide them further."""
        return self.fsdp * self.cp * self.tp // self.ep

    def __str__(self) -> str:
        """The axes above 1, e.g. ``fsdp 2 × tp 2``; ``fsdp 1`` for a single process."""
        sizes = {axis: getattr(self, axis) for axis in (*AXES, "ep")}
        factors = [f"{axis} {sizes[axis]}" for axis in AXES if sizes[axis] > 1] or ["fsdp 1"]
        return " × ".join(factors) + (f", ep {self.ep}" if self.ep > 1 else "")


ONE_PROCESS = MeshSizes()


def mesh_sizes(section: Parallelism, processes: int) -> MeshSizes:
    """The mesh of so many processes (≥ 1), with the sizes derived that are left out.

    Raises:
        RefusedError: the sizes do not make this number of processes, or an axis is not built yet.
    """
    for axis, what in UNBUILT.items():
        size = getattr(section, axis)
        if size is not None and size > 1:
            raise RefusedError(
                _refusal(
                    axis,
                    size,
                    f"This release has no {what}.",
                    "Remove it; use fsdp or tp to divide a model among more processes.",
                )
            )
    given = {axis: getattr(section, axis) for axis in AXES}
    left_out = "fsdp" if given["fsdp"] is None else "replicate"
    derived = {axis: size or 1 for axis, size in given.items()}
    if given[left_out] is None:
        derived[left_out] = _left(derived, processes, left_out=left_out)
    sizes = MeshSizes(**derived, ep=section.ep or 1)
    if sizes.processes != processes:
        raise RefusedError(_product(given, derived, processes))
    _check_experts(sizes)
    return sizes


def _left(sizes: dict[str, int], processes: int, *, left_out: str) -> int:
    """The size of the axis that was left out; 1 where the others do not divide the processes."""
    others = math.prod(size for axis, size in sizes.items() if axis != left_out)
    return 1 if processes % others else processes // others


def _product(given: dict[str, int | None], sizes: dict[str, int], processes: int) -> Refusal:
    named = {axis: sizes[axis] for axis in AXES if given[axis] is not None}
    axis = max(named, key=lambda each: (named[each], each))
    product = " × ".join(f"{each} {size}" for each, size in named.items())
    made = math.prod(named.values())
    sum_up = product if len(named) == 1 else f"{product} = {made}"
    fixed = given["fsdp"] is not None and given["replicate"] is not None
    return _refusal(
        axis,
        sizes[axis],
        f"{sum_up} {'are not' if fixed else 'do not divide'} the trainer's {processes} processes "
        "(replicas × processesPerReplica).",
        f"Change the sizes, or have {'exactly' if fixed else 'a multiple of'} {made} processes.",
    )


def _check_experts(sizes: MeshSizes) -> None:
    shared = sizes.fsdp * sizes.cp * sizes.tp
    if shared % sizes.ep:
        raise RefusedError(
            _refusal(
                "ep",
                sizes.ep,
                f"fsdp {sizes.fsdp} × cp {sizes.cp} × tp {sizes.tp} = {shared} processes cannot be "
                f"divided into groups of {sizes.ep}.",
                f"Set it to a divisor of {shared}.",
            )
        )
    if sizes.ep > 1 and sizes.ep % sizes.tp:
        raise RefusedError(
            _refusal(
                "ep",
                sizes.ep,
                f"It is no multiple of tp {sizes.tp}: processes that compute a layer together must "
                "be in one group of experts.",
                f"Set it to a multiple of {sizes.tp}, or lower tp.",
            )
        )


def _refusal(axis: str, value: Any, message: str, remedy: str) -> Refusal:
    return Refusal(
        field=f"{SECTION}.{axis}",
        value=str(value),
        reason="OptionUnusable",
        message=message,
        remedy=remedy,
    )
