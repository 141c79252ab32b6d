from __future__ import annotations

import pytest

from benchmarks.support.result import Result
from benchmarks.trainer.memory_model import CASES, compare


@pytest.mark.parametrize("name", CASES)
def test_a_step_needs_the_memory_that_the_model_says(name: str) -> None:
    result = Result("memory_model")
    compare(name, CASES[name], result)
    assert all(bar["met"] for bar in result.bars.values()), result.figures
