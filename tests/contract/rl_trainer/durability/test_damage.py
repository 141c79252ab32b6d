"""Rollouts whose overflow is lost or damaged in the bucket: their groups are dropped, no more."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.task import Cause, Queue, TaskState
from rl_contracts.stores.rollouts import RolloutStore
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN

STEPS = 3
DAMAGES = {"digest": b"another", "does not exist": None}


class Damaging(RolloutStore):
    """Everything overflows; what the first groups left in the bucket is damaged, or goes."""

    def __init__(self, store: RolloutStore) -> None:
        super().__init__(store._mongo, store._objects, overflow_bytes=256)
        self.damaged: dict[str, str] = {}

    def put(self, documents: Sequence[Rollout]) -> None:
        super().put(documents)
        left = [damage for damage in DAMAGES if damage not in self.damaged.values()]
        if not left:
            return
        self.damaged[documents[0].task] = left[0]
        prefix, content = self._prefix(documents[0].run, documents[0].id), DAMAGES[left[0]]
        if content is None:
            assert self._objects.delete_prefix(prefix)
            return
        for stored_object in self._objects.list(prefix):
            self._objects.put(stored_object.key, content)


@pytest.mark.soak
def test_a_damaged_rollout_drops_only_its_group(make_world: MakeWorld) -> None:
    world = make_world(steps=STEPS)
    store = Damaging(world.stores.rollouts)
    sampler = TestSampler(dataclasses.replace(world.stores, rollouts=store), RUN)
    with sampling(sampler):
        assert world.attempt() == 0
    world.check_lineage()
    assert world.run.totals.drops.by_cause == {Cause.UNUSABLE: len(DAMAGES)}
    dropped = world.stores.tasks.find(RUN, queue=Queue.CONSUMED, state=TaskState.DEAD)
    reasons = {task.id: task.reason for task in dropped if task.cause is Cause.UNUSABLE}
    assert reasons.keys() == store.damaged.keys()
    for task, words in store.damaged.items():
        assert f"overflow/{task}." in reasons[task]
        assert words in reasons[task]
    trained = {task for batch in world.stores.batches.of_run(RUN) for task in batch.tasks}
    assert not trained & store.damaged.keys()
