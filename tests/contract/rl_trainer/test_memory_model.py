from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.trainer.memory_model import SMOKE, TOLERANCE, Case, measured, predicted
from tests.examples import first

LORA = {"rank": 32, "targets": ["q_proj", "v_proj"]}
ADAPTED = replace(SMOKE, training=SMOKE.training | {"precision": "BF16", "lora": LORA})
TAUGHT = replace(
    SMOKE,
    training={"precision": "BF16", "gradientCheckpointing": True, "maxTokensPerMicrobatch": 2048},
    algorithm={"objective": "Distillation", "teacher": "s3://models/teacher"},
    teacher=SMOKE.config | {"hidden_size": 256, "intermediate_size": 4096, "num_hidden_layers": 1},
)


@pytest.mark.parametrize(
    "case",
    first(2, [SMOKE, ADAPTED, TAUGHT]),
    ids=["all weights", "adapters of two matrices", "a larger teacher"],
)
def test_a_step_needs_the_memory_that_the_model_says(case: Case) -> None:
    assert predicted(case).total == pytest.approx(measured(case)["peak"], rel=TOLERANCE)
