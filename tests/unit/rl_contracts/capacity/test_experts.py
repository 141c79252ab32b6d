from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.capacity.experts import refusals
from rl_contracts.capacity.shape import shape_of
from rl_contracts.errors import Refusal
from rl_contracts.spec.resources import RLJobSpec
from tests.models.families import SIZES, SPEC, config_of

UNKNOWN: dict[str, Any] = {
    **SIZES,
    "model_type": "mixtral",
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
}
"""A mixture of a family whose routers are not known."""


def refused(
    family: str,
    *,
    algorithm: dict[str, Any],
    lora: dict[str, Any] | None = None,
    **changes: Any,
) -> list[Refusal]:
    training = SPEC["training"] | ({} if lora is None else {"lora": lora})
    spec = RLJobSpec.model_validate(SPEC | {"algorithm": algorithm, "training": training})
    config = UNKNOWN if family == UNKNOWN["model_type"] else config_of(family).to_dict()
    return list(refusals(shape_of(config | changes), spec))


@pytest.mark.parametrize("name", ["loadBalanceCoefficient", "zLossCoefficient"])
@pytest.mark.parametrize(
    ("family", "says"), [("qwen3", "no layers with experts"), ("mixtral", "are not known")]
)
def test_losses_of_routers_that_are_not_there_or_not_known_are_refused(
    family: str, says: str, name: str
) -> None:
    (refusal,) = refused(family, algorithm={"experts": {name: 0.01}})
    assert (refusal.field, refusal.value) == (f"spec.algorithm.experts.{name}", "0.01")
    assert says in refusal.message
    assert refusal.remedy


@pytest.mark.parametrize("family", ["deepseek_v3", "gpt_oss", "qwen2_moe", "qwen3_moe"])
def test_losses_of_known_routers_are_not_refused(family: str) -> None:
    experts = {"loadBalanceCoefficient": 0.01, "zLossCoefficient": 0.001}
    assert not refused(family, algorithm={"experts": experts})


def test_without_coefficients_no_model_is_refused() -> None:
    assert not refused("qwen3", algorithm={"experts": {}})
    assert not refused("mixtral", algorithm={})


@pytest.mark.parametrize("objective", ["RL", "SFT"])
def test_a_family_whose_routers_draw_noise_in_training_is_refused(objective: str) -> None:
    changes: dict[str, Any] = {"model_type": "phimoe"}
    (refusal,) = refused("mixtral", algorithm={"objective": objective}, **changes)
    assert (refusal.field, refusal.value) == ("spec.model.uri", SPEC["model"]["uri"])
    assert refusal.reason == "ModelUnusable"
    assert "type phimoe cannot be trained" in refusal.message
    assert "models.md" in refusal.remedy


@pytest.mark.parametrize("changes", [{"mlp_only_layers": [0]}, {"decoder_sparse_step": 2}])
def test_dense_layers_that_the_engine_takes_for_experts_are_refused(
    changes: dict[str, Any],
) -> None:
    (refusal,) = refused("qwen3_moe", algorithm={}, **changes)
    assert refusal.field == "spec.model.uri"
    assert "of its 3 layers have experts" in refusal.message
    assert not refused("qwen3_moe", algorithm={"objective": "SFT"}, **changes)


@pytest.mark.parametrize(
    ("family", "says"),
    [
        ("deepseek_v3", ""),
        ("gpt_oss", "Experts of the family 'gpt_oss' cannot have adapters"),
        ("mixtral", "Experts of the family 'mixtral' cannot have adapters"),
        ("qwen2_moe", ""),
        ("qwen3", "no layers with experts"),
        ("qwen3_moe", ""),
    ],
)
def test_experts_that_cannot_have_adapters_are_refused_by_name(family: str, says: str) -> None:
    all_refusals = refused(family, algorithm={}, lora={"experts": "Adapted"})
    assert [each.message for each in all_refusals if says and says in each.message] == [
        each.message for each in all_refusals
    ]
    assert bool(all_refusals) == bool(says)
    for refusal in all_refusals:
        assert (refusal.field, refusal.value) == ("spec.training.lora.experts", "Adapted")
        assert refusal.remedy


ATTENTION = ["q_proj", "v_proj"]


@pytest.mark.parametrize(
    ("family", "targets", "value"),
    [
        ("qwen3_moe", [], "[]"),
        ("qwen2_moe", [*ATTENTION, "down_proj"], "down_proj"),
        ("deepseek_v3", ["gate_proj", "up_proj", "down_proj"], "gate_proj, up_proj, down_proj"),
        ("qwen3_moe", ATTENTION, ""),
        ("qwen3", [], ""),
        ("gpt_oss", [], ""),
        ("mixtral", [], ""),
    ],
)
def test_targets_that_are_matrices_of_frozen_experts_are_refused(
    family: str, targets: list[str], value: str
) -> None:
    all_refusals = refused(family, algorithm={}, lora={"targets": targets})
    assert [(each.field, each.value) for each in all_refusals] == (
        [("spec.training.lora.targets", value)] if value else []
    )
    assert not refused("qwen3_moe", algorithm={}, lora={"experts": "Adapted", "targets": []})
