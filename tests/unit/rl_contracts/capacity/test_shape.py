from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from rl_contracts.capacity.shape import FAMILIES as PLANNED
from rl_contracts.capacity.shape import UnknownShapeError, kept_fields, shape_of
from tests.models.families import FAMILIES, SIZES, config_of
from tests.models.tiny_vision import SEEING, seeing_config


def test_the_families_that_are_planned_are_those_that_are_tried() -> None:
    assert set(PLANNED) == set(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_parameters_are_those_of_the_model_that_transformers_builds(family: str) -> None:
    config = config_of(family)
    with torch.device("meta"):
        module = AutoModelForCausalLM.from_config(config)
    built = sum(parameter.numel() for parameter in module.parameters())
    assert shape_of(config.to_dict()).parameters == built


@pytest.mark.parametrize("family", SEEING)
@pytest.mark.parametrize("tiny", [True, False])
def test_parameters_of_a_vision_language_model_are_those_that_transformers_builds(
    family: str, tiny: bool
) -> None:
    config = seeing_config(family) if tiny else AutoConfig.for_model(family)
    with torch.device("meta"):
        module = AutoModelForImageTextToText.from_config(config)
    shape = shape_of(config.to_dict())
    assert shape.parameters == sum(parameter.numel() for parameter in module.parameters())
    tower = sum(parameter.numel() for parameter in module.model.visual.parameters())
    assert shape.vision_parameters == tower
    assert shape_of(kept_fields(config.to_dict())) == shape


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
