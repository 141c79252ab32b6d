"""Options that a run with adapters could not honour: refused by name."""

from __future__ import annotations

from collections.abc import Iterator

from rl_contracts.errors import Refusal
from rl_contracts.spec.resources import RLJobSpec

STACKED = (
    ({"q_proj", "k_proj", "v_proj"}, {"q_proj", "v_proj"}),
    ({"gate_proj", "up_proj"}, {"gate_proj"}),
)
"""Layers that the engine runs as one, and those of them that it takes the others' adapters with."""


def of_lora(spec: RLJobSpec) -> Iterator[Refusal]:
    """What of a spec does not go with ``spec.training.lora``."""
    if spec.training.lora is None:
        return
    if spec.weight_sync.pause != "Retract":
        yield Refusal(
            field="spec.weightSync.pause",
            value=spec.weight_sync.pause,
            reason="LoRAUnsupported",
            message="With spec.training.lora nothing pauses: running requests keep their adapter.",
            remedy="Remove it.",
        )
    yield from _of_targets(set(spec.training.lora.targets))
    quantization, critic = spec.training.lora.quantization, spec.algorithm.critic
    if quantization is not None and critic is not None and critic.model is None:
        yield Refusal(
            field="spec.training.lora.quantization",
            value=quantization,
            reason="LoRAUnsupported",
            message="The critic trains all weights of the model that it begins as: such cannot be "
            "quantized.",
            remedy="Set spec.algorithm.critic.model, or remove it.",
        )
    kl = spec.algorithm.kl
    if kl is not None and kl.refresh_every_steps is not None:
        yield Refusal(
            field="spec.algorithm.kl.refreshEverySteps",
            value=str(kl.refresh_every_steps),
            reason="LoRAUnsupported",
            message="With spec.training.lora the reference is the model without its adapters.",
            remedy="Remove it, or train all weights.",
        )


def _of_targets(targets: set[str]) -> Iterator[Refusal]:
    """SGLang stacks these layers, and loses or refuses adapters of some of them alone."""
    for stacked, needed in STACKED:
        missing = sorted(needed - targets)
        if stacked & targets and missing:
            yield Refusal(
                field="spec.training.lora.targets",
                value=", ".join(sorted(targets)),
                reason="LoRAUnsupported",
                message=f"The engine serves no adapters of {', '.join(sorted(stacked & targets))} "
                f"without {' and '.join(missing)}.",
                remedy=f"Add {' and '.join(missing)}.",
            )
