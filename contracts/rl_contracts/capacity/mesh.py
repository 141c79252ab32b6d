"""How a mesh divides a model: heads, widths, vocabulary and experts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rl_contracts.capacity.shape import Shape
from rl_contracts.errors import Refusal
from rl_contracts.spec.parallelism import SECTION, MeshSizes

DECODERS = (
    "deepseek_v3",
    "gemma3_text",
    "glm4",
    "llama",
    "mistral",
    "phi3",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
)
TRIED = {
    "tp": DECODERS,
    "cp": tuple(sorted((*DECODERS, "gpt_oss"))),
    "ep": ("deepseek_v3", "gpt_oss", "qwen2_moe", "qwen3_moe"),
}
"""Families (``model_type``) whose gradients on an axis are compared with one process by the soak.
transformers has plans for more; a plan that is wrong changes gradients without an error."""
NF4_BLOCK = 64
"""Weights of a row that share a scale."""


def part_of(shape: Shape, sizes: MeshSizes) -> Shape:
    """What a process computes with once FSDP has gathered its layers.

    Latent attention, which tp leaves whole, and norms are not divided. Of experts that ep divides
    each process has some, whole.
    """
    tp, ep = sizes.tp, sizes.ep
    heads = 1 if shape.latent is not None else tp
    return replace(
        shape,
        heads=max(1, shape.heads // heads),
        key_value_heads=max(1, shape.key_value_heads // heads),
        feed_forward=shape.feed_forward // tp,
        vocabulary=max(1, shape.vocabulary // tp),
        experts=shape.experts // ep,
        expert_width=shape.expert_width // (tp if ep == 1 else 1),
        shared_width=shape.shared_width // tp,
    )


def refusals(
    shape: Shape, sizes: MeshSizes, *, quantization: str | None = None
) -> Iterator[Refusal]:
    """What of the model the mesh does not divide, with the numbers.

    Args:
        shape: of the model.
        sizes: of the mesh.
        quantization: of its frozen weights.
    """
    yield from _untried(shape, sizes)
    for what, number in _by_tensor_ranks(shape, sizes):
        if number % sizes.tp:
            yield _refusal("tp", sizes.tp, what, number)
    heads = part_of(shape, sizes).heads
    if heads % sizes.cp:
        each = f"attention heads{f' in a process of tp {sizes.tp}' if sizes.tp > 1 else ''}"
        yield _refusal("cp", sizes.cp, each, heads)
    if sizes.ep > 1 and not shape.experts:
        yield Refusal(
            field=f"{SECTION}.ep",
            value=str(sizes.ep),
            reason="OptionUnusable",
            message="The model has no experts to divide.",
            remedy="Remove it; use fsdp or tp.",
        )
    elif shape.experts % sizes.ep:
        yield _refusal("ep", sizes.ep, "experts of a layer", shape.experts)
    if quantization == "NF4" and sizes.tp > 1:
        yield from _blocks(shape, sizes.tp)


def _untried(shape: Shape, sizes: MeshSizes) -> Iterator[Refusal]:
    if sizes.ep > 1 and not shape.experts:
        return
    for axis, families in TRIED.items():
        if getattr(sizes, axis) > 1 and shape.family not in families:
            yield Refusal(
                field=f"{SECTION}.{axis}",
                value=str(getattr(sizes, axis)),
                reason="OptionUnusable",
                message=f"Models of the family {shape.family!r} have not been tried on {axis}.",
                remedy=f"Remove it; the families that have been are {', '.join(families)}.",
            )


def _by_tensor_ranks(shape: Shape, sizes: MeshSizes) -> Iterator[tuple[str, int]]:
    yield "tokens of the vocabulary", shape.vocabulary
    if shape.latent is None:
        yield "attention heads", shape.heads
        yield "heads of keys and values", shape.key_value_heads
    if shape.expert_layers < shape.layers:
        yield "numbers between the feed-forward matrices (intermediate_size)", shape.feed_forward
    if shape.experts and sizes.ep == 1:
        yield "numbers between an expert's matrices", shape.expert_width
    if shape.shared_width:
        yield "numbers between the shared experts' matrices", shape.shared_width


def _blocks(shape: Shape, tp: int) -> Iterator[Refusal]:
    for name, width in (("o_proj", shape.value_width), ("down_proj", shape.feed_forward)):
        if width // tp % NF4_BLOCK:
            yield Refusal(
                field="spec.training.lora.quantization",
                value="NF4",
                reason="OptionUnusable",
                message=f"Rows of {name} have {width} weights; a process of tp {tp} would hold "
                f"{width // tp}, no multiple of the {NF4_BLOCK} that share a scale.",
                remedy="Choose Int8, or lower tp.",
            )


def _refusal(axis: str, size: int, what: str, number: int) -> Refusal:
    return Refusal(
        field=f"{SECTION}.{axis}",
        value=str(size),
        reason="OptionUnusable",
        message=f"The model has {number} {what}, which {axis} {size} does not divide.",
        remedy=f"Set it to a common divisor of {number} and the trainer's processes.",
    )
