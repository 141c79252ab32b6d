"""What the manifest asks of a group that is trained."""

from __future__ import annotations

from collections.abc import Callable

from rl_trainer.inputs import limits
from rl_trainer.model.policy import Policy
from tests.unit.rl_trainer.conftest import MakeSpec


def test_groups_must_fit_the_manifests_temperature_and_estimator(
    load_policy: Callable[[], Policy], make_spec: MakeSpec
) -> None:
    spec = make_spec(
        agent={"sampling": {"temperature": 0.7, "maxContextTokens": 64}},
        algorithm={"estimator": {"kind": "RLOO"}},
    )
    taken = limits(load_policy(), spec)
    assert (taken.temperature, taken.estimator) == (0.7, spec.algorithm.estimator)
