"""Which models' experts and routers are known, and what the manifest asks that a model lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from rl_contracts.capacity.shape import Shape
from rl_contracts.errors import Refusal
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.training.lora import OF_EXPERTS, LoRA

Scores = Literal["Softmax", "Sigmoid"]
ROUTERS: Mapping[str, Scores] = {
    "deepseek_v3": "Sigmoid",
    "gpt_oss": "Softmax",
    "qwen2_moe": "Softmax",
    "qwen3_moe": "Softmax",
}
"""Families (``model_type``) whose routers are known: how logits become the scores of experts."""
ALL_SPARSE = ("qwen2_moe", "qwen3_moe")
"""Families of which SGLang 0.5.23 builds every layer with experts, whatever the config says
(``sglang/srt/models/qwen3_moe.py``, ``stage_facts``): a dense layer's weights are then passed over
without an error."""
ADAPTED = ("deepseek_v3", "qwen2_moe", "qwen3_moe")
"""Families whose experts can have adapters: two matrices without biases, of which the first begins
with the rows of the gate. Those of gpt-oss have biases, and rows of gate and up by turns."""
UNTRAINED = {
    "phimoe": "Models of type phimoe cannot be trained: in training their routers choose experts "
    "by random noise that no option switches off, and the engine samples without it.",
}
"""Families that cannot be trained, with the reason."""
SECTION = "spec.algorithm.experts"
LOW_RANK = "spec.training.lora"


def refusals(shape: Shape, spec: RLJobSpec) -> Iterator[Refusal]:
    """Options for experts or routers that the model does not have, or that are not known.

    Args:
        shape: of the policy.
        spec: the manifest.
    """
    yield from _untrained(shape, spec)
    if not spec.algorithm.unsampled:
        yield from _served_wrongly(shape, spec)
    low_rank, section = spec.training.lora, spec.algorithm.experts
    if low_rank is not None:
        yield from _adapters(shape, low_rank)
    asked = {
        "loadBalanceCoefficient": section.load_balance_coefficient,
        "zLossCoefficient": section.z_loss_coefficient,
    }
    if section.routing == "Replay":
        yield from _unknown(shape, f"{SECTION}.routing", section.routing)
    for name, value in asked.items():
        if value:
            yield from _unknown(shape, f"{SECTION}.{name}", f"{value:g}")


def _untrained(shape: Shape, spec: RLJobSpec) -> Iterator[Refusal]:
    if shape.family in UNTRAINED:
        yield Refusal(
            field="spec.model.uri",
            value=spec.model.uri[:200],
            reason="ModelUnusable",
            message=UNTRAINED[shape.family],
            remedy="Name a model of a family in docs/reference/models.md.",
        )


def _served_wrongly(shape: Shape, spec: RLJobSpec) -> Iterator[Refusal]:
    if shape.family in ALL_SPARSE and 0 < shape.expert_layers < shape.layers:
        yield Refusal(
            field="spec.model.uri",
            value=spec.model.uri[:200],
            reason="ModelUnusable",
            message=f"{shape.expert_layers} of its {shape.layers} layers have experts "
            "(mlp_only_layers or decoder_sparse_step of its config.json); SGLang 0.5.23 takes all "
            f"layers of {shape.family} for such and would sample from other weights.",
            remedy="Name a model whose layers all have experts.",
        )


def _adapters(shape: Shape, section: LoRA) -> Iterator[Refusal]:
    """Adapters of experts that there cannot be, and adapters for experts that are frozen."""
    sparse = bool(shape.expert_layers)
    if section.experts == "Frozen":
        if sparse and shape.family in ADAPTED and not section.spares_experts:
            yield _targets_of_frozen(section)
    elif not sparse:
        yield _experts_refused(section, "The model has no layers with experts.", "Remove it.")
    elif shape.family not in ADAPTED:
        message = f"Experts of the family {shape.family!r} cannot have adapters."
        remedy = f"Remove it; the families that can are {', '.join(ADAPTED)}."
        yield _experts_refused(section, message, remedy)


def _experts_refused(section: LoRA, message: str, remedy: str) -> Refusal:
    return Refusal(
        field=f"{LOW_RANK}.experts",
        value=section.experts,
        reason="OptionUnusable",
        message=message,
        remedy=remedy,
    )


def _targets_of_frozen(section: LoRA) -> Refusal:
    """Of targets whose names are those of experts' matrices in the model's files."""
    named = ", ".join(target for target in section.targets if target in OF_EXPERTS)
    subject = "These layers are" if named else "Without targets all layers get adapters, also"
    return Refusal(
        field=f"{LOW_RANK}.targets",
        value=named or "[]",
        reason="OptionUnusable",
        message=f"{subject} matrices of the model's experts, and {LOW_RANK}.experts is Frozen.",
        remedy="Set experts to Adapted, or name layers of the attention alone: q_proj, k_proj, "
        "v_proj, o_proj.",
    )


def _unknown(shape: Shape, field: str, value: str) -> Iterator[Refusal]:
    if not shape.expert_layers:
        yield Refusal(
            field=field,
            value=value,
            reason="OptionUnusable",
            message="The model has no layers with experts, so it has no routers.",
            remedy="Remove it, or name a mixture of experts.",
        )
    elif shape.family not in ROUTERS:
        yield Refusal(
            field=field,
            value=value,
            reason="OptionUnusable",
            message=f"Routers of the family {shape.family!r} are not known.",
            remedy=f"Remove it; the families that are known are {', '.join(ROUTERS)}.",
        )
