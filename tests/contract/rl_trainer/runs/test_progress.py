"""What counts as progress in long phases, so that they are not taken for a trainer that hangs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext

import pytest

from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.durability.crash import Crashed, crashing_at
from tests.contract.rl_trainer.runs.test_standalone import evaluation, sampling_run
from tests.contract.rl_trainer.runs.test_supervised import supervised
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World


@pytest.mark.parametrize(
    ("make", "noted"),
    [
        pytest.param(evaluation, {"_wait", "score"}, id="an evaluation of one policy"),
        pytest.param(sampling_run, {"_wait"}, id="sampling of one policy"),
        pytest.param(
            supervised, {"_samples", "score", "watched"}, id="validation losses and a final model"
        ),
    ],
)
def test_each_part_of_a_long_phase_is_progress(
    make: Callable[[MakeWorld], World],
    noted: set[str],
    make_world: MakeWorld,
    advanced: Counter[str],
) -> None:
    world = make(make_world)
    unsampled = world.spec.algorithm.unsampled
    with nullcontext() if unsampled else sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    assert set(advanced) == noted


def test_each_step_that_is_trained_again_is_progress(
    make_world: MakeWorld, advanced: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(steps=4, checkpoint={"everySteps": 100})
    with sampling(TestSampler(world.stores, RUN)):
        with pytest.raises(Crashed), crashing_at("training: step 4", monkeypatch):
            world.attempt()
        assert (world.run.step, world.run.durable, advanced["replay"]) == (3, None, 0)
        assert world.attempt() == 0
    assert advanced["replay"] == 3
