"""Sizes of an engine that its model does not allow, with the numbers."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.capacity.engine_division import refusals
from rl_contracts.capacity.shape import shape_of
from rl_contracts.spec.engine import Engine

DENSE = {
    "model_type": "qwen3",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 4,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
}
SPARSE = DENSE | {
    "model_type": "qwen3_moe",
    "num_attention_heads": 16,
    "num_experts": 12,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 384,
}


def refused(config: dict[str, Any], **options: Any) -> list[tuple[str, str]]:
    engine = Engine.model_validate(options)
    return [(each.field, each.message) for each in refusals("e", engine, shape_of(config))]


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (DENSE, {}),
        (DENSE, {"tensorParallel": 12}),  # each head of keys and values three times
        (DENSE, {"tensorParallel": 4, "dataParallel": 5}),
        (DENSE, {"contextTokens": 4096}),
        (DENSE, {"weightPrecision": "FP8"}),
        (SPARSE, {"tensorParallel": 8, "expertParallel": 4}),
        (SPARSE, {"args": ["--tp", "2"]}),
    ],
)
def test_sizes_that_divide_the_model_pass(config: dict[str, Any], options: dict[str, Any]) -> None:
    assert refused(config, **options) == []


@pytest.mark.parametrize(
    ("config", "options", "field", "says"),
    [
        (DENSE, {"tensorParallel": 8}, "e.tensorParallel", "12 attention heads, which 8 GPUs"),
        (DENSE, {"args": ["--tp", "5"]}, "e.tensorParallel", "12 attention heads, which 5 GPUs"),
        (DENSE, {"tensorParallel": 6}, "e.tensorParallel", "4 heads of keys and values"),
        (
            DENSE | {"intermediate_size": 3074},
            {"tensorParallel": 4},
            "e.tensorParallel",
            "3074 numbers between its feed-forward matrices, which 4 GPUs",
        ),
        (
            SPARSE | {"moe_intermediate_size": 385},
            {"tensorParallel": 8, "expertParallel": 4},
            "e.tensorParallel",
            "385 numbers between an expert's matrices, which 2 GPUs",
        ),
        (
            SPARSE,
            {"tensorParallel": 8, "expertParallel": 8},
            "e.expertParallel",
            "12 experts a layer",
        ),
        (
            DENSE,
            {"tensorParallel": 4, "expertParallel": 4},
            "e.expertParallel",
            "no experts to divide",
        ),
        (SPARSE, {"weightPrecision": "FP8"}, "e.weightPrecision", "the model is of 'qwen3_moe'"),
        (DENSE, {"contextTokens": 4097}, "e.contextTokens", "made for at most 4096 tokens"),
    ],
)
def test_sizes_that_do_not_are_refused_with_the_numbers(
    config: dict[str, Any], options: dict[str, Any], field: str, says: str
) -> None:
    ((at, message),) = refused(config, **options)
    assert at == field
    assert says in message
