"""Of two trainers only the newer epoch's writes take effect, wherever the older one slept.

The commit of a step stands for all commands, each of which tests/chaos/rl_trainer tries.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.durability import fencing
from tests.contract.rl_trainer.durability.fencing import COMMIT, TRAINING
from tests.contract.rl_trainer.durability.pausing import Point, Trainers, running_trainers


@pytest.fixture(scope="module")
def trainers() -> Iterator[Trainers]:
    with running_trainers() as started:
        yield started


@pytest.mark.soak
def test_a_fenced_out_trainer_changes_nothing(make_world: MakeWorld, trainers: Trainers) -> None:
    point = Point(COMMIT, "after", nth=2)
    assert fencing.both_take_turns(make_world(**TRAINING), trainers, point)


def test_a_final_model_is_not_written_over(make_world: MakeWorld, trainers: Trainers) -> None:
    point = Point(r"writing .*/final/0/model\.safetensors")
    assert fencing.old_resumes_last(make_world(**TRAINING), trainers, point)
