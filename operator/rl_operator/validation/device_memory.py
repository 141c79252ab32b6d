"""Whether the training fits the memory of its devices: a condition, and a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rl_contracts.capacity.fit import Fit, fit
from rl_contracts.capacity.shape import Shape, UnknownShapeError, shape_of
from rl_contracts.errors import Refusal
from rl_contracts.spec.quantities import parse_quantity
from rl_contracts.spec.resources import RLJobSpec
from rl_operator.kube.conditions import ConditionUpdate, Truth
from rl_operator.render.samplers.arguments import on_processor

KIND = "MemoryFits"
STATUS: dict[str, Truth] = {"Fits": "True", "NotCounted": "Unknown"}
"""By verdict; False with the others."""
BY_LABEL = ", by the largest label nvidia.com/gpu.memory of the nodes that its pods may get"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """What the memory model says of a job."""

    fit: Fit
    refusal: Refusal | None = None

    @property
    def condition(self) -> ConditionUpdate:
        """What the job's status says of it."""
        status: Truth = STATUS.get(self.fit.verdict, "False")
        message = f"{self.fit.message} {self.fit.remedy}".strip()
        return ConditionUpdate(KIND, status, self.fit.verdict, message)


def _on_gpus(spec: RLJobSpec) -> bool:
    """Whether GPUs train; an engine that shares claimed ones says so, no resource does."""
    if spec.colocated:
        return not on_processor(spec.samplers[0].template.engine.args)
    return spec.trainer.gpus > 0


def of_job(
    spec: RLJobSpec,
    model: Mapping[str, Any],
    others: Mapping[str, Mapping[str, Any]],
    *,
    labelled_gib: float | None,
) -> DeviceMemory | None:
    """Compare what a step needs with the memory of one device, and of a pod.

    Args:
        spec: the manifest.
        model: sizes in the model's config; empty where they are not known.
        others: the same of ``spec.algorithm.other_models``, by the same fields.
        labelled_gib: memory of the largest GPU that the trainer may get, by the nodes' labels.

    Returns:
        None where the model or the memory is not known, or nothing is trained.
    """
    declared = spec.training.memory.device_gib
    size = declared or labelled_gib
    if size is None:
        return None
    shape = _known(model)
    if shape is None:
        return None
    known = {at: each for at, config in others.items() if (each := _known(config)) is not None}
    source, cuda = "" if declared else BY_LABEL, _on_gpus(spec)
    limit = spec.trainer.resources.limits.get("memory")
    compared = fit(
        spec,
        shape,
        size_gib=size,
        cuda=cuda,
        source=source,
        host_bytes=None if limit is None else parse_quantity(limit),
        others=known,
    )
    if compared is None:
        return None
    return DeviceMemory(fit=compared, refusal=compared.refusal(spec, size_gib=size))


def _known(model: Mapping[str, Any]) -> Shape | None:
    try:
        return shape_of(model)
    except UnknownShapeError:
        return None
