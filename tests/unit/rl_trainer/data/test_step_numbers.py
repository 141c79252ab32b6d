from __future__ import annotations

from typing import Any

import pytest

from rl_trainer.data.step_numbers import refusals
from tests.unit.rl_trainer.conftest import MakeSpec

CRITIC, WARMUP, EVERY = (
    "spec.algorithm.critic.warmupSteps",
    "spec.training.optimizer.warmupSteps",
    "spec.training.evaluation.everySteps",
)


@pytest.mark.parametrize(
    ("critic", "warmup", "every", "fields"),
    [
        (4, 5, 5, []),
        (5, 5, 5, [CRITIC]),
        (4, 6, 5, [WARMUP]),
        (4, 5, 6, [EVERY]),
        (50, 50, 50, [CRITIC, WARMUP, EVERY]),
    ],
)
def test_no_option_asks_for_more_steps_than_the_epochs_make(
    critic: int, warmup: int, every: int, fields: list[str], make_spec: MakeSpec
) -> None:
    sections: dict[str, Any] = {
        "training": {
            "optimizer": {"warmupSteps": warmup},
            "evaluation": {"everySteps": every},
            "promptsPerStep": 4,
        },
        "algorithm": {"estimator": {"kind": "GAE"}, "critic": {"warmupSteps": critic}},
    }
    sections["training"] |= {"steps": None, "epochs": 2}
    refused = list(refusals(make_spec(**sections), records=10))
    assert [refusal.field for refusal in refused] == fields
    for refusal in refused:
        assert "10 records make 5 steps (training.epochs 2, promptsPerStep 4)" in refusal.message
        most = 4 if refusal.field == CRITIC else 5
        assert refusal.remedy == f"Set it to at most {most}, or raise spec.training.epochs."


def test_the_api_server_has_compared_a_number_of_steps(make_spec: MakeSpec) -> None:
    spec = make_spec(training={"optimizer": {"warmupSteps": 50}})
    assert list(refusals(spec, records=10)) == []
