from __future__ import annotations

import pytest

from benchmarks.trainer.memory_model import SMOKE, TOLERANCE, measured, predicted


def test_a_step_needs_the_memory_that_the_model_says() -> None:
    assert predicted(SMOKE).total == pytest.approx(measured(SMOKE)["peak"], rel=TOLERANCE)
