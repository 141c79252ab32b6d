"""Each recipe turns the GSM8K job into one that nothing refuses."""

from __future__ import annotations

import pytest

from rl_contracts.spec.resources import RLJobSpec
from rl_operator.validation.refusals import of_spec
from tests.samples.recipes import RECIPES, gsm8k, merged, recipe

KINDS = {
    "cispo": ("GRPO", "CISPO"),
    "distillation": ("GRPO", "PPOClip"),
    "gspo": ("GRPO", "GSPO"),
    "maxent": ("MaxEnt", "MaxEnt"),
    "minirl": ("DrGRPO", "MiniRL"),
    "reinforce-plus-plus": ("REINFORCEPlusPlusBaseline", "PPOClip"),
    "rloo": ("RLOO", "PPOClip"),
}


@pytest.mark.parametrize("name", RECIPES)
def test_nothing_of_a_recipe_is_refused(name: str) -> None:
    spec = RLJobSpec.model_validate(merged(gsm8k(), recipe(name))["spec"])
    assert list(of_spec(spec)) == []
    assert (spec.algorithm.estimator.kind, spec.algorithm.loss.kind) == KINDS[name]
    assert set(recipe(name)["spec"]) == {"algorithm"}
