"""Whole runs with episodes that grow too old: withheld, or waited for."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.audit.batch import audit
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.step_metrics import PACE, StepMetrics
from rl_contracts.stores.connect import Stores
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.durability.crash import train_over_crashes
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World

STALENESS, OLD = 1, 4


def configure(world: World, **off_policy: Any) -> None:
    algorithm = {"groupSize": 4, "offPolicy": {"maxStaleness": STALENESS, **off_policy}}
    world.spec = world.spec.model_validate(
        world.spec.model_dump(by_alias=True) | {"algorithm": algorithm}
    )
    world.write_mounts()


def first_is_old(rollout: Rollout) -> Rollout:
    """Member 0 as if it had begun some steps earlier."""
    (span,) = rollout.spans
    if rollout.member != 0 or span.step < OLD:
        return rollout
    older = span.model_copy(update={"step": span.step - OLD, "version": span.version - OLD})
    return rollout.model_copy(update={"spans": [older]})


def metrics_of(world: World) -> list[StepMetrics]:
    lines = world.newest("metrics.jsonl").decode().splitlines()
    return [StepMetrics.model_validate_json(line) for line in lines]


@pytest.mark.soak
def test_withheld_members_are_never_trained_also_over_crashes(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, stores: Stores
) -> None:
    world = make_world(steps=8, checkpoint={"everySteps": 3})
    configure(world, onStale="Withhold")
    with sampling(TestSampler(stores, RUN, spoil=first_is_old, pause_seconds=0.05)):
        train_over_crashes(world, monkeypatch, first=60, later=40)
    world.check_lineage()  # none too old, and the weights are those of the batches' members
    batches = stores.batches.lineage(world.run.head_batch)
    withheld = [name for batch in batches for name in batch.withheld]
    assert withheld
    assert all(
        rollout.member == 0 and batch.step - 1 - rollout.oldest_step > STALENESS
        for batch in batches
        for rollout in stores.rollouts.get(batch.withheld).values()
    )
    assert not {member.rollout for batch in batches for member in batch.members} & set(withheld)
    assert {audit(stores, RUN, step=batch.step).verdict for batch in batches} == {"match"}
    assert world.run.totals.withheld == len(withheld)
    assert [metric.withheld for metric in metrics_of(world)] == [
        len(batch.withheld) for batch in batches
    ]


@pytest.mark.soak
def test_a_slow_sampler_loses_no_group_where_steps_wait_for_it(
    make_world: MakeWorld, stores: Stores
) -> None:
    world = make_world(steps=5)
    configure(world, onStale="Wait", maxWaitSeconds=600)
    # Both claim with the newest policy alone: no step has more groups to train than places.
    slow = TestSampler(stores, RUN, name="slow", pause_seconds=1.5, max_staleness=0)
    fast = TestSampler(stores, RUN, name="fast", seed=1, max_staleness=0)
    with sampling(slow, fast):
        assert world.attempt() == 0
    world.check_lineage()
    totals = world.run.totals
    assert totals.dropped_stale == 0
    assert {"slow", "fast"} == {each.sampler for step in world.trained() for each in step}
    paced = [metric.seconds.get(PACE, 0.0) for metric in metrics_of(world)]
    assert max(paced) > 0.5, "a step waited for the slow one"
