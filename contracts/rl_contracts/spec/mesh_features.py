"""Which features work on which axis of a trainer's mesh; docs/guides/parallelism.md shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rl_contracts.errors import Refusal
from rl_contracts.spec.parallelism import MeshSizes
from rl_contracts.spec.resources import RLJobSpec

SHOWN_AXES = ("replicate", "fsdp", "tp", "cp", "ep")
"""Axes that this release can build."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """Something that a manifest asks for, and the axes on which it does not work."""

    name: str
    """As a reader of the docs knows it."""
    at: str = ""
    """Path of the manifest's field that asks for it; empty where no axis refuses it."""
    value: Callable[[RLJobSpec], object | None] = field(default=lambda spec: None)
    """The field's value where a manifest asks for it, else None."""
    refused: dict[str, str] = field(default_factory=dict)
    """By axis: why."""
    remedy: str = ""


def _dropout(spec: RLJobSpec) -> object | None:
    lora = spec.training.lora
    return None if lora is None or not lora.dropout else lora.dropout


def _quantization(spec: RLJobSpec) -> object | None:
    lora = spec.training.lora
    return None if lora is None else lora.quantization


def _experts(spec: RLJobSpec) -> object | None:
    lora = spec.training.lora
    return None if lora is None or lora.experts == "Frozen" else lora.experts


def _eight_bit(spec: RLJobSpec) -> object | None:
    kind = spec.training.optimizer.kind
    return kind if kind == "AdamW8bit" else None


FEATURES = (
    Feature(name="every loss, estimator and correction"),
    Feature(name="reference (`algorithm.kl`), refreshed too"),
    Feature(name="entropy bonus, KL over the vocabulary"),
    Feature(name="losses and metrics of routers, routing replay (`algorithm.experts`)"),
    Feature(name="critic"),
    Feature(name="SFT"),
    Feature(name="distillation"),
    Feature(name="LoRA"),
    Feature(
        name="LoRA with dropout",
        at="spec.training.lora.dropout",
        value=_dropout,
        refused={"tp": "each process would drop other inputs of a layer that several compute"},
        remedy="Set dropout to 0, or tp to 1.",
    ),
    Feature(
        name="LoRA on experts (`training.lora.experts`)",
        at="spec.training.lora.experts",
        value=_experts,
        refused={
            "tp": "the adapters of an expert are whole on each process, and its matrices are not",
            "ep": "tokens travel to processes that have the expert, but not its adapters",
        },
        remedy="Set experts to Frozen, or divide the model by fsdp or cp.",
    ),
    Feature(
        name="LoRA beside quantized weights",
        at="spec.training.lora.quantization",
        value=_quantization,
        refused={"ep": "layers of experts cannot be quantized"},
        remedy="Remove it, or ep.",
    ),
    Feature(
        name="AdamW8bit",
        at="spec.training.optimizer.kind",
        value=_eight_bit,
        refused=dict.fromkeys(
            SHOWN_AXES,
            "bitsandbytes cannot quantize moments that lie in parts on several processes",
        ),
        remedy="Use AdamW, or one process.",
    ),
    Feature(name="gradient clipping"),
    Feature(name="gradient checkpointing"),
    Feature(name="offloadActivations, offloadOptimizer, offloadParameters, offloadReference"),
    Feature(name="packing, merging of an episode's turns"),
    Feature(name="a checkpoint of another mesh"),
    Feature(name="publication, deltas, exports"),
)


def refusals(spec: RLJobSpec, sizes: MeshSizes) -> Iterator[Refusal]:
    """What the manifest asks for and its mesh cannot do."""
    axes = [axis for axis in SHOWN_AXES if getattr(sizes, axis) > 1]
    for feature in FEATURES:
        value = feature.value(spec)
        why = next((feature.refused[axis] for axis in axes if axis in feature.refused), None)
        if value is not None and why is not None:
            yield Refusal(
                field=feature.at,
                value=str(value),
                reason="OptionUnusable",
                message=f"It does not work on the mesh {sizes}: {why}.",
                remedy=feature.remedy,
            )
