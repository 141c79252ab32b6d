from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from rl_trainer.algorithm.samples import Sample
from rl_trainer.model import optimizer
from tests.models import states
from tests.unit.rl_trainer.compared import same, score, weights
from tests.unit.rl_trainer.conftest import MakeLearner, MakeSamples

KL: dict[str, Any] = {"coefficient": 0.5}
RATE = {"optimizer": {"learningRate": 1e-2}}


@pytest.mark.parametrize("estimator", ["K1", "Abs", "K2", "K3", "Full"])
def test_the_reference_is_the_first_model_and_stays_so(
    estimator: str, make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    algorithm = {"kl": KL | {"estimator": estimator, "coefficient": 1e-6}}
    learner = make_learner(algorithm=algorithm, training=RATE)
    first = learner.update(make_samples(), step=1)
    assert first.kl == pytest.approx(0, abs=1e-6)
    assert first.kl_coefficient == 1e-6
    later = learner.update(make_samples(), step=2)
    assert later.kl is not None
    assert abs(later.kl) > 1e-4


def test_a_large_coefficient_keeps_the_policy_near_the_reference(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    def moved(algorithm: dict[str, Any]) -> float:
        learner = make_learner(algorithm=algorithm, training=RATE)
        for step in range(1, 9):
            learner.update(make_samples(), step=step)
        samples = make_samples()
        base = [score(make_learner(), sample)[sample.mask] for sample in samples]
        now = [score(learner, sample)[sample.mask] for sample in samples]
        return float(torch.cat([a - b for a, b in zip(now, base, strict=True)]).square().mean())

    free, held = moved({}), moved({"kl": {"estimator": "Full", "coefficient": 50.0}})
    assert held < 0.5 * free


def test_a_refreshed_reference_is_the_policy_of_that_step(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    learner = make_learner(algorithm={"kl": KL | {"refreshEverySteps": 2}}, training=RATE)
    kls = [learner.update(make_samples(), step=step).kl for step in range(1, 6)]
    zero = [kl == pytest.approx(0, abs=1e-6) for kl in kls]
    assert zero == [True, False, True, False, True]


def test_state_put_back_goes_on_bit_for_bit(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    """As a checkpoint does it: weights, moments, controls and the refreshed reference."""
    algorithm = {
        "kl": KL | {"refreshEverySteps": 2, "controller": ADAPTIVE},
        "estimator": {"kind": "MaxEnt", "maxent": {"tuneTau": {"targetEntropy": 0.5}}},
        "loss": {"kind": "MaxEnt"},
    }
    first, other = (make_learner(algorithm=algorithm, training=RATE) for _ in range(2))
    samples = weighted(make_samples())
    for step in (1, 2, 3):
        first.update(samples, step=step)
    with torch.no_grad():
        for name, parameter in other.parameters.items():
            parameter.copy_(first.parameters[name])
    saved = optimizer.state(first.optimizer, first.parameters)
    optimizer.restore(other.optimizer, other.parameters, states.stored(saved), other.training)
    other.restore_auxiliary(states.stored(first.auxiliary()))
    other.controls = type(first.controls).model_validate_json(first.controls.model_dump_json())
    assert first.controls.kl_coefficient != KL["coefficient"]
    assert first.controls.tau != 1.0
    assert first.update(samples, step=4).loss == other.update(samples, step=4).loss
    assert same(weights(first), weights(other))
    assert first.controls == other.controls


ADAPTIVE = {"kind": "Adaptive", "target": 0.01, "horizon": 100}


def weighted(samples: list[Sample]) -> list[Sample]:
    """Pairs of MaxEnt's weights, which are never negative."""
    return [
        dataclasses.replace(
            sample,
            advantage=1.5 if number % 2 else 0.5,
            group=str(number // 2),
            rollout=str(number),
        )
        for number, sample in enumerate(samples)
    ]


def test_the_adaptive_coefficient_follows_what_the_step_measured(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    learner = make_learner(algorithm={"kl": KL | {"controller": ADAPTIVE}}, training=RATE)
    samples = weighted(make_samples())
    learner.update(samples, step=1)  # KL 0: the error is -1, held at -0.2
    assert learner.controls.kl_coefficient == pytest.approx(0.5 * (1 - 0.2 * 6 / 100))
    update = learner.update(samples, step=2)
    assert update.kl is not None
    assert update.kl > 0.012
    assert learner.controls.kl_coefficient == pytest.approx(
        0.5 * (1 - 0.2 * 6 / 100) * (1 + 0.2 * 6 / 100)
    )
