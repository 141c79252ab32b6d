from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_trainer.algorithm.prompt_budget import admissible

SMALL = st.integers(1, 6)


@pytest.mark.parametrize(
    ("outstanding", "per_step", "staleness", "left", "room"),
    [
        (0, 16, 1, 60, 32),
        (16, 16, 1, 60, 16),
        (32, 16, 1, 60, 0),
        (40, 16, 1, 60, 0),
        (0, 16, 0, 60, 16),
        (0, 16, 4, 2, 32),
        (16, 16, 4, 1, 0),
        (0, 16, 4, 0, 0),
    ],
)
def test_by_hand(*, outstanding: int, per_step: int, staleness: int, left: int, room: int) -> None:
    actual = admissible(
        outstanding=outstanding,
        prompts_per_step=per_step,
        max_staleness=staleness,
        steps_left=left,
    )
    assert actual == room


@given(SMALL, st.integers(0, 5), st.integers(1, 12), st.data())
def test_a_run_gets_its_batches_and_no_prompt_waits_too_long(
    per_step: int, staleness: int, steps: int, data: st.DataObject
) -> None:
    """Play a run: groups finish in any order, some are lost, batches take the oldest."""
    waiting: list[int] = []  # the step at which each outstanding task was inserted
    step = inserted = lost = 0
    while step < steps:
        room = admissible(
            outstanding=len(waiting),
            prompts_per_step=per_step,
            max_staleness=staleness,
            steps_left=steps - step,
        )
        waiting += [step] * room
        inserted += room
        assert len(waiting) >= per_step, "the next batch could never be formed"
        assert len(waiting) <= (staleness + 1) * per_step
        if data.draw(st.booleans()) and lost < 10:
            waiting.pop(data.draw(st.integers(0, len(waiting) - 1)))
            lost += 1
            continue
        batch, waiting = waiting[:per_step], waiting[per_step:]
        step += 1
        # Sampled with the newest policy of its insertion, it is fresh enough when trained.
        assert all((step - 1) - born <= staleness for born in batch)
    assert waiting == []
    assert inserted == steps * per_step + lost
