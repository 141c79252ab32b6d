"""What the memory model takes from a manifest."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.capacity.of_spec import setup_of
from rl_contracts.spec.algorithm.algorithm import TEACHER_FIELD
from rl_contracts.spec.resources import RLJobSpec
from tests.samples.manifests import JOB
from tests.unit.rl_contracts.capacity.test_training_memory import SMALL

REWARD_K1 = {"placement": "Reward", "estimator": "K1"}
TAUGHT = {"objective": "Distillation", "teacher": "s3://models/teacher", "groupSize": 1}


def given(algorithm: dict[str, Any], **training: Any) -> RLJobSpec:
    spec = JOB["spec"]
    sections = {"algorithm": algorithm, "training": spec.get("training", {}) | training}
    return RLJobSpec.model_validate(spec | sections)


@pytest.mark.parametrize(
    ("kl", "full"),
    [
        ({"placement": "Loss", "estimator": "Full"}, True),
        (REWARD_K1 | {"loss": {"estimator": "Full"}}, True),
        ({"placement": "Reward", "estimator": "Full"}, True),
        (REWARD_K1 | {"loss": {"estimator": "K3"}}, False),
        (REWARD_K1, False),
    ],
)
def test_whole_distributions_of_either_penalty_are_counted(kl: dict[str, Any], full: bool) -> None:
    setup = setup_of(given({"kl": kl}), cuda=True)
    assert (setup.full_divergence, setup.distributions) == (full, int(full))
    assert setup.reference_in_passes == full


@pytest.mark.parametrize("lora", [False, True])
def test_states_of_a_teacher_that_is_not_counted_are_not_either(lora: bool) -> None:
    spec = given(TAUGHT, **({"lora": {}} if lora else {}))
    unknown = setup_of(spec, cuda=True)
    assert (unknown.reference, unknown.compares_states, unknown.distributions) == (False, False, 1)
    known = setup_of(spec, cuda=True, others={TEACHER_FIELD: SMALL})
    assert (known.reference, known.compares_states) == (True, True)


def test_adapters_are_compared_with_the_model_without_them() -> None:
    kl = {"placement": "Loss", "estimator": "Full"}
    setup = setup_of(given({"kl": kl}, lora={}), cuda=True)
    assert (setup.reference, setup.reference_in_passes, setup.compares_states) == (
        False,
        False,
        True,
    )
