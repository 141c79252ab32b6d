"""What is said of a training that fits, may not fit, or cannot."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from rl_contracts.capacity.fit import fit
from rl_contracts.capacity.shape import kept_fields, shape_of
from rl_contracts.spec.resources import RLJobSpec
from tests.samples.manifests import JOB

QWEN3 = {
    "model_type": "qwen3",
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 3072,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
    "max_position_embeddings": 40960,
}
SHAPE = shape_of(QWEN3)


def spec(**training: Any) -> RLJobSpec:
    sections = copy.deepcopy(JOB["spec"])
    sections["training"] = {**sections.get("training", {}), **training}
    return RLJobSpec.model_validate(sections)


@pytest.mark.parametrize(("gib", "verdict"), [(8, "TooLarge"), (11, "MayNotFit"), (80, "Fits")])
def test_a_small_model_fits_large_gpus_alone(gib: float, verdict: str) -> None:
    compared = fit(spec(), SHAPE, size_gib=gib, cuda=True)
    assert compared is not None
    assert compared.verdict == verdict
    assert f"it has {gib:g} GiB" in compared.message
    assert bool(compared.remedy) == (verdict != "Fits")
    assert ("maxContextTokens" in compared.remedy) == (verdict == "MayNotFit")


def test_what_cannot_fit_is_refused_with_the_arithmetic() -> None:
    compared = fit(spec(), SHAPE, size_gib=8, cuda=True, source=", by a label")
    assert compared is not None
    refusal = compared.refusal(spec(), size_gib=8)
    assert refusal is not None
    assert refusal.message == (
        "By formula training needs weights 2.22 + gradients 2.22 + moments 4.44 = 8.88 GiB before "
        "any activation on each GPU, and it has 8 GiB, by a label."
    )
    assert (refusal.field, refusal.value) == ("spec.training.memory.deviceGiB", "8")
    assert "set training.offloadParameters" in refusal.remedy
    assert refusal.remedy.endswith("To start all the same, set training.memory.check to Warn.")


def test_a_warning_is_no_refusal() -> None:
    compared = fit(spec(), SHAPE, size_gib=8, cuda=True)
    assert compared is not None
    assert compared.refusal(spec(memory={"check": "Warn"}), size_gib=8) is None


def test_more_processes_divide_what_cannot_fit() -> None:
    compared = fit(spec(), SHAPE, size_gib=9, cuda=True, ranks=8)
    assert compared is not None
    assert compared.verdict != "TooLarge"


def test_lists_in_a_config_are_no_sizes() -> None:
    assert "num_key_value_heads" not in kept_fields({**QWEN3, "num_key_value_heads": [8, 8]})
    assert kept_fields({"mlp_only_layers": [1, 2]}) == {"mlp_only_layers": [1, 2]}


@pytest.mark.parametrize(("least", "verdict"), [(1, "TooLarge"), (4, "Fits")])
def test_an_elastic_trainer_is_judged_by_its_smallest_attempt(least: int, verdict: str) -> None:
    given = spec().model_dump(by_alias=True, exclude_none=True)
    elastic = {"minReplicas": least, "maxReplicas": 8}
    given["trainer"] = {**given.get("trainer", {}), "replicas": 4, "elastic": elastic}
    elastic_spec = RLJobSpec.model_validate(given)
    compared = fit(elastic_spec, SHAPE, size_gib=8.5, cuda=True)
    assert compared is not None
    assert compared.verdict == verdict
    assert f"the smallest attempt (trainer.elastic.minReplicas {least})" in compared.message
    if verdict == "TooLarge":
        assert "raise trainer.elastic.minReplicas" in compared.remedy
    known = fit(elastic_spec, SHAPE, size_gib=8.5, cuda=True, ranks=4)
    assert known is not None
    assert known.verdict == "Fits"
    assert "minReplicas" not in known.message


@pytest.mark.parametrize(
    ("critic", "verdict"), [({}, "Fits"), ({"maxTokensPerMicrobatch": 131_072}, "MayNotFit")]
)
def test_a_critic_of_larger_microbatches_may_not_fit(critic: dict[str, Any], verdict: str) -> None:
    given = spec(maxTokensPerMicrobatch=8192).model_dump(by_alias=True, exclude_none=True)
    given["algorithm"] |= {"estimator": {"kind": "GAE"}, "critic": critic}
    compared = fit(RLJobSpec.model_validate(given), SHAPE, size_gib=40, cuda=True)
    assert compared is not None
    assert compared.verdict == verdict
