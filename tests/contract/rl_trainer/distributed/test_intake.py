"""Ranks read their own shares, find damage before they compute, and lose nothing by a kill."""

from __future__ import annotations

import dataclasses
import math
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from rl_contracts.audit import batch as audits
from rl_contracts.documents.arrays import pack_int32, unpack_int32
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.task import Cause, Queue, TaskState
from rl_contracts.spec.rollouts import Rollouts
from rl_contracts.stores.rollouts import RolloutStore
from rl_trainer.attempt import FAILED, SUCCEEDED
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.distributed.test_team import codes, two_pods
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World

DAMAGED_GROUPS = 3
"""Of the four of the first step: 12 of its 16 rollouts, more than one of two ranks has."""
OUTSIDE = 1 << 20


class Damaging(RolloutStore):
    """Changes a token of the first groups behind the back of their summaries."""

    def __init__(self, store: RolloutStore, *, groups: float = DAMAGED_GROUPS) -> None:
        super().__init__(store._mongo, store._objects)
        self.damaged: list[str] = []
        self._groups = groups

    def put(self, documents: Sequence[Rollout]) -> None:
        super().put(documents)
        if len(self.damaged) >= self._groups:
            return
        for number, rollout in enumerate(documents):
            tokens = unpack_int32(rollout.tokens)
            tokens[-1] = OUTSIDE if number % 2 else (tokens[-1] + 1) % 8
            change = {"$set": {"tokens": pack_int32(tokens)}}
            self._documents.update_one({"_id": rollout.id}, change)
        self.damaged.append(documents[0].task)


def check_audit(world: World) -> None:
    """Every step of the lineage was trained from what the store holds."""
    for step in range(1, world.run.step + 1):
        audit = audits.audit(world.stores, RUN, step=step)
        assert audit.verdict == "match", (step, audit.problem)


@pytest.mark.soak
def test_damage_is_found_by_the_rank_that_reads_it_and_the_step_is_made_of_others(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_world(steps=3)
    store = Damaging(world.stores.rollouts)
    sampler = TestSampler(dataclasses.replace(world.stores, rollouts=store), RUN)
    files = [tmp_path / f"reads-{rank}" for rank in range(2)]
    with sampling(sampler), two_pods(world, reads=files) as pair:
        assert codes(pair) == [SUCCEEDED, SUCCEEDED]
    assert world.run.totals.drops.by_cause == {Cause.UNUSABLE: DAMAGED_GROUPS}
    dropped = world.stores.tasks.find(RUN, queue=Queue.CONSUMED, state=TaskState.DEAD)
    reasons = {task.id: task.reason for task in dropped if task.cause is Cause.UNUSABLE}
    assert reasons.keys() == set(store.damaged)
    text = " ".join(reasons.values())
    for words in ("(read by rank 0)", "(read by rank 1)", "vocabulary", "its summary says"):
        assert words in text
    trained = {task for batch in world.stores.batches.of_run(RUN) for task in batch.tasks}
    assert not trained & reasons.keys()
    check_audit(world)
    check_shares(world, [file.read_text().split() for file in files])


def check_shares(world: World, reads: Sequence[Sequence[str]]) -> None:
    """After the first step, which was planned twice, each rollout was read by one rank, once."""
    times = Counter(name for read in reads for name in read)
    later = [rollout.id for step in world.trained()[1:] for rollout in step]
    assert {times[name] for name in later} == {1}
    for read in reads:
        assert set(later) & set(read), "both ranks have a share"


@pytest.mark.soak
def test_damage_in_every_group_ends_the_attempt_with_its_reason(make_world: MakeWorld) -> None:
    world = make_world(steps=3)
    world.spec = world.spec.model_copy(update={"rollouts": Rollouts(max_empty_batches=1)})
    world.write_mounts()
    store = Damaging(world.stores.rollouts, groups=math.inf)
    sampler = TestSampler(dataclasses.replace(world.stores, rollouts=store), RUN)
    with sampling(sampler), two_pods(world) as pair:
        assert codes(pair) == [FAILED, FAILED]
    assert world.outcome.reason == "RolloutsFailing"
    assert "4 groups in a row were damaged" in world.outcome.message
    assert "(read by rank" in world.outcome.message
    assert world.stores.batches.of_run(RUN) == [], "no batch with damage was written"


@pytest.mark.soak
def test_a_rank_that_dies_between_read_and_commit_loses_nothing(make_world: MakeWorld) -> None:
    world = make_world(steps=3, checkpoint={"everySteps": 100})
    with sampling(TestSampler(world.stores, RUN)):
        with two_pods(world, dies=(1, "read")) as pair:
            assert codes(pair) == [FAILED, -signal.SIGKILL]
        assert world.outcome.reason == "RankLost"
        assert world.run.step == 1, "the second step was not committed"
        formed = world.stores.batches.of_run(RUN)
        assert [batch.step for batch in formed] == [1, 2]
        assert world.attempt() == SUCCEEDED
    batches = world.stores.batches.lineage(world.run.head_batch)
    assert [batch.step for batch in batches] == [1, 2, 3]
    assert batches[0].id == formed[0].id, "the first step was trained again as it was"
    tasks = [task for batch in batches for task in batch.tasks]
    assert len(tasks) == len(set(tasks)), "a task was trained twice"
    assert set(formed[1].tasks) <= set(tasks), "what had been read was not lost"
    check_audit(world)
    final, expected = world.final_weights(), world.uninterrupted()
    for name, tensor in expected.items():  # replayed by one process, as the rest was made by one
        assert torch.equal(final[name], tensor), name
