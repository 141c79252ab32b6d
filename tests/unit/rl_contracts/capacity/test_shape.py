from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rl_contracts.capacity.shape import UnknownShapeError, kept_fields, shape_of

SIZES: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "eos_token_id": 1,
}
HEADS = {"head_dim": 24}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LATENT = {
    "num_key_value_heads": 4,
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {},
    "qwen2": {},
    "qwen3": HEADS | {"tie_word_embeddings": True},
    "qwen3_moe": HEADS | EXPERTS | {"mlp_only_layers": [0]},
    "qwen2_moe": EXPERTS | {"shared_expert_intermediate_size": 48},
    "gemma3_text": HEADS,
    "phi3": {},
    "glm4": HEADS,
    "gpt_oss": HEADS | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "deepseek_v3": LATENT,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_parameters_are_those_of_the_model_that_transformers_builds(family: str) -> None:
    config = AutoConfig.for_model(family, **SIZES | FAMILIES[family])
    with torch.device("meta"):
        module = AutoModelForCausalLM.from_config(config)
    built = sum(parameter.numel() for parameter in module.parameters())
    assert shape_of(config.to_dict()).parameters == built


def test_parameters_of_published_models() -> None:
    small = {
        "model_type": "qwen3",
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    }
    assert shape_of(small).parameters == 596_049_920  # Qwen/Qwen3-0.6B


def test_sizes_of_the_text_model_of_a_vision_language_model_are_read() -> None:
    whole = {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", **SIZES}}
    assert shape_of(whole).layers == 3
    assert shape_of(whole).head_width == 256  # gemma3_text's own default


@pytest.mark.parametrize(
    "changes", [{"hidden_size": None}, {"vocab_size": -4}, {"num_hidden_layers": "12"}]
)
def test_config_without_a_usable_size_is_unknown(changes: dict[str, Any]) -> None:
    with pytest.raises(UnknownShapeError, match=next(iter(changes))):
        shape_of({"model_type": "llama", **SIZES, **changes})


def test_kept_fields_are_few_and_bounded() -> None:
    hostile = {
        **SIZES,
        "model_type": "x" * 10_000,
        "mlp_only_layers": list(range(100_000)),
        "rope_scaling": {"deep": [1] * 1000},
        "hidden_size": 1 << 70,
    }
    kept = kept_fields(hostile)
    assert len(str(kept)) < 10_000
    assert "hidden_size" not in kept
    assert "rope_scaling" not in kept
