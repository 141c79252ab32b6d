"""Sequences that are longer than the model's positions."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from rl_contracts.capacity.context import context_refusal
from rl_contracts.capacity.shape import kept_fields, longest_of
from rl_contracts.spec.resources import RLJobSpec
from tests.samples.manifests import JOB


def spec(tokens: int | None) -> RLJobSpec:
    sections = copy.deepcopy(JOB["spec"])
    sections["agent"] = {"sampling": {} if tokens is None else {"maxContextTokens": tokens}}
    return RLJobSpec.model_validate(sections)


def test_a_longer_context_than_the_models_is_refused_with_both_numbers() -> None:
    refusal = context_refusal(spec(131_072), 40_960)
    assert refusal is not None
    assert (refusal.reason, refusal.value) == ("ContextTooLong", "131072")
    assert "40960" in refusal.message
    assert "40960 or less" in refusal.remedy
    assert context_refusal(spec(40_960), 40_960) is None
    assert context_refusal(spec(131_072), None) is None


def test_the_default_is_lowered_to_a_shorter_model_and_not_refused() -> None:
    assert context_refusal(spec(None), 512) is None


@pytest.mark.parametrize(
    ("scaling", "longest"),
    [
        ({}, 32_768),
        ({"rope_scaling": {"type": "dynamic", "factor": 4.0}}, 131_072),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, 32_768),
        ({"rope_parameters": {"rope_type": "longrope", "factor": 4.0}}, 32_768),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, 65_536),
        ({"rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 8192}}, 32_768),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, 32_768),
        ({"rope_scaling": {"factor": "many"}}, 32_768),
        ({"rope_parameters": {"full_attention": {"factor": 8.0}}}, 32_768),
    ],
)
def test_rotary_scaling_lengthens_the_context_as_the_engine_computes_it(
    scaling: dict[str, Any], longest: int
) -> None:
    config = {"model_type": "qwen2", "max_position_embeddings": 32_768, **scaling}
    assert longest_of(config) == longest
    assert longest_of(kept_fields(config)) == longest
    assert longest_of({"model_type": "gemma3_text"}) == 131_072
    assert longest_of({"model_type": "qwen2"}) is None
