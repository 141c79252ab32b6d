"""How an engine's GPUs divide a model, and whether the model allows the engine's context."""

from __future__ import annotations

from collections.abc import Iterator

from rl_contracts.capacity.engine import Options, options_of
from rl_contracts.capacity.shape import Shape
from rl_contracts.errors import Refusal
from rl_contracts.spec.engine import Engine
from rl_contracts.spec.resources import RLJobSpec

REQUANTIZED = ("qwen2", "qwen3")
"""Families (``model_type``) whose loader declares that it can be quantized again
(``supports_quantized_rl_reload`` in ``sglang/srt/models``)."""


def of_groups(spec: RLJobSpec, shape: Shape) -> Iterator[Refusal]:
    """Refusals of the engines of a job's own groups."""
    for index, group in enumerate(spec.samplers):
        if group.pool_ref is None:
            at = f"spec.samplers[{index}].template.engine"
            yield from refusals(at, group.template.engine, shape)


def refusals(at: str, engine: Engine, shape: Shape) -> Iterator[Refusal]:
    """Options with which SGLang cannot serve this model, with the numbers.

    Args:
        at: path of the engine's section, e.g. ``spec.samplers[0].template.engine``.
        engine: the section.
        shape: of the model.
    """
    options = options_of(engine)
    yield from _of_tensor(f"{at}.tensorParallel", options, shape)
    yield from _of_experts(f"{at}.expertParallel", options, shape)
    family = shape.family
    if engine.weight_precision is not None and (family not in REQUANTIZED or shape.vision):
        yield _refusal(
            f"{at}.weightPrecision",
            engine.weight_precision,
            f"SGLang 0.5.23 takes up new weights of a quantized engine for the families "
            f"{' and '.join(REQUANTIZED)} without images alone, and the model is of {family!r}"
            f"{', with images' if shape.vision else ''}.",
            "Remove it.",
        )
    longest = shape.max_positions
    if options.context is not None and longest is not None and options.context > longest:
        yield _refusal(
            f"{at}.contextTokens",
            options.context,
            f"The model was made for at most {longest} tokens: SGLang would not start.",
            f"Remove it, or set it to {longest} or less.",
        )


def _of_tensor(field: str, options: Options, shape: Shape) -> Iterator[Refusal]:
    """SGLang has each head of queries on one GPU; it repeats heads of keys and values."""
    tensor, heads = options.tensor, shape.heads
    if heads % tensor:
        yield _refusal(
            field,
            tensor,
            f"The model has {heads} attention heads, which {tensor} GPUs do not divide.",
            f"Set it to a divisor of {heads}; dataParallel serves copies on further GPUs.",
        )
        return
    repeated = shape.key_value_heads
    if shape.latent is None and repeated % tensor and tensor % repeated:
        yield _refusal(
            field,
            tensor,
            f"The model has {repeated} heads of keys and values, and neither {tensor} nor "
            f"{repeated} divides the other.",
            f"Set it to a divisor or a multiple of {repeated}.",
        )
    sharers = max(1, tensor // options.expert)
    dense = shape.expert_layers < shape.layers
    for what, width, gpus in (
        ("its feed-forward matrices", shape.feed_forward if dense else 0, tensor),
        ("an expert's matrices", shape.expert_width if shape.experts else 0, sharers),
    ):
        if width % gpus:
            yield _refusal(
                field,
                tensor,
                f"The model has {width} numbers between {what}, which {gpus} GPUs do not divide.",
                f"Lower it until its GPUs divide {width}.",
            )


def _of_experts(field: str, options: Options, shape: Shape) -> Iterator[Refusal]:
    if options.expert == 1:
        return
    if not shape.experts:
        yield _refusal(field, options.expert, "The model has no experts to divide.", "Remove it.")
    elif shape.experts % options.expert:
        yield _refusal(
            field,
            options.expert,
            f"The model has {shape.experts} experts a layer, which it does not divide.",
            f"Set it to a common divisor of {shape.experts} and tensorParallel.",
        )


def _refusal(field: str, value: object, message: str, remedy: str) -> Refusal:
    return Refusal(
        field=field, value=str(value), reason="OptionUnusable", message=message, remedy=remedy
    )
