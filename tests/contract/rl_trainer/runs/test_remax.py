"""A run with greedy baselines: named by its batches, trained by none of them."""

from __future__ import annotations

import pytest

from rl_contracts.audit import run as run_audit
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.durability.crash import train_over_crashes
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN


def test_groups_of_one_train_against_a_greedy_rollout_over_crashes(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(steps=5, checkpoint={"everySteps": 2})
    algorithm = {"groupSize": 1, "estimator": {"kind": "ReMax"}, "offPolicy": {"maxStaleness": 1}}
    world.spec = world.spec.model_validate(
        world.spec.model_dump(by_alias=True) | {"algorithm": algorithm}
    )
    world.write_mounts()
    with sampling(TestSampler(world.stores, RUN, pause_seconds=0.02)):
        train_over_crashes(world, monkeypatch, first=60, later=60)
    world.check_lineage()
    trained = {rollout.id: rollout for step in world.trained() for rollout in step}
    for batch in world.stores.batches.lineage(world.run.head_batch):
        greedy = world.stores.rollouts.get(batch.baselines)
        assert [greedy[baseline].task for baseline in batch.baselines] == batch.tasks
        assert all(rollout.greedy for rollout in greedy.values())
        assert not trained.keys() & greedy.keys()
        by_task = {rollout.task: rollout.reward for rollout in greedy.values()}
        assert [member.advantage for member in batch.members] == [
            trained[member.rollout].reward - by_task[trained[member.rollout].task]
            for member in batch.members
        ]
    assert world.run.totals.rollouts_trained == len(trained) == 5 * 4
    assert run_audit.audit(world.stores, RUN).good
