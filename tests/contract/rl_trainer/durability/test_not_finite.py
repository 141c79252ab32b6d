"""Numbers that are not finite end an attempt before its optimizer; what was durable stays so."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence

import pytest

from rl_trainer.algorithm.kl.controller import Controls
from rl_trainer.algorithm.packing import Packed
from rl_trainer.algorithm.samples import Sample
from rl_trainer.algorithm.step_totals import Rates, Update
from rl_trainer.model.learner import Learner
from rl_trainer.model.weight_update import WeightUpdater
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World
from tests.waiting import until


def spoil_once(world: World, monkeypatch: pytest.MonkeyPatch, *, step: int, what: str) -> None:
    """Have one step meet a loss or a gradient that is not finite, once the last one is durable."""
    update, accumulate = Learner.update, WeightUpdater._accumulate

    def spoiled(
        self: Learner, samples: Sequence[Sample], *, step: int, rates: Rates | None = None
    ) -> Update:
        if step == at:
            until(
                lambda: world.run.durable and world.run.durable.step == at - 1,
                what="the checkpoint of the step before",
            )
            if what == "loss":
                first = dataclasses.replace(samples[0], advantage=math.inf)
                samples = [first, *samples[1:]]
        return update(self, samples, step=step, rates=rates)

    def accumulated(
        self: WeightUpdater, packed: Packed, *, step: int, denominator: int, controls: Controls
    ) -> list[object]:
        terms = accumulate(self, packed, step=step, denominator=denominator, controls=controls)
        if step == at and what == "gradient":
            gradient = next(iter(self.parameters.values())).grad
            assert gradient is not None
            gradient[0, 0] = math.nan
        return list(terms)

    at = step
    monkeypatch.setattr(Learner, "update", spoiled)
    monkeypatch.setattr(WeightUpdater, "_accumulate", accumulated)


def test_a_nonfinite_step_leaves_the_last_checkpoint(make_world: MakeWorld) -> None:
    world = make_world(steps=6, checkpoint={"everySteps": 2})
    with sampling(TestSampler(world.stores, RUN)):
        for step, what in ((3, "gradient"), (5, "loss")):
            with pytest.MonkeyPatch.context() as monkeypatch:
                spoil_once(world, monkeypatch, step=step, what=what)
                assert world.attempt() == 1
            assert world.outcome.reason == "NotFinite"
            assert f"Step {step} was not made: the {what} of rollout {RUN}" in world.outcome.message
            durable = world.run.durable
            assert durable is not None
            assert (world.run.step, durable.step) == (step - 1, step - 1)
            assert world.stores.objects.list(durable.prefix), "it lies in the bucket"
        assert world.attempt() == 0
    metrics = [json.loads(line) for line in world.newest("metrics.jsonl").splitlines()]
    first, second, third = sorted({metric["epoch"] for metric in metrics})
    assert [(metric["step"], metric["epoch"]) for metric in metrics] == [
        (1, first),
        (2, first),
        (3, second),
        (4, second),
        (5, third),
        (6, third),
    ]
    assert not any(metric["replayed"] for metric in metrics)
    world.check_lineage()
