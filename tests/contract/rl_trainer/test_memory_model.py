from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.trainer.memory_model import SMOKE, TOLERANCE, Case, measured, predicted

LORA = {"rank": 32, "targets": ["q_proj", "v_proj"]}
ADAPTED = replace(SMOKE, training=SMOKE.training | {"precision": "BF16", "lora": LORA})


@pytest.mark.parametrize("case", [SMOKE, ADAPTED], ids=["all weights", "adapters of two matrices"])
def test_a_step_needs_the_memory_that_the_model_says(case: Case) -> None:
    assert predicted(case).total == pytest.approx(measured(case)["peak"], rel=TOLERANCE)
