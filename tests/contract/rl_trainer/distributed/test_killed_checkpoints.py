"""A process that dies in the middle of a checkpoint, and the attempt after it."""

from __future__ import annotations

import signal

import pytest

from rl_trainer.attempt import FAILED, SUCCEEDED
from rl_trainer.checkpoint import retention
from rl_trainer.checkpoint.retention import Folder
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.distributed import ranks
from tests.contract.rl_trainer.distributed.test_team import codes, two_pods
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World

STEPS = 4
CHECKPOINTS = {"everySteps": 1, "keepLast": 2}


@pytest.mark.soak
def test_a_rank_that_dies_while_it_writes_its_part_costs_no_whole_checkpoint(
    make_world: MakeWorld,
) -> None:
    """It dies between its files and their index; chaos tests try the other phases."""
    world = make_world(steps=STEPS, checkpoint=CHECKPOINTS)
    check(world, rank=1, dies="checkpoint written")


def check(world: World, *, rank: int, dies: ranks.Death) -> None:
    """The run goes on from its last whole checkpoint, and no torn one stays.

    Args:
        world: of ``STEPS`` with ``CHECKPOINTS``.
        rank: that is killed in its second checkpoint.
        dies: where.
    """
    with sampling(TestSampler(world.stores, RUN)):
        with two_pods(world, dies=(rank, dies)) as pair:
            ended = codes(pair)
        assert ended[rank] == -signal.SIGKILL, (dies, ended)
        assert ended[1 - rank] == FAILED, (dies, ended)
        before = world.run
        assert before.durable is not None, "the first checkpoint is whole"
        torn = [each for each in _folders(world) if each.number > before.durable.step]
        assert all(each.complete == (dies == "checkpoint committed") for each in torn)
        assert torn or dies == "checkpoint asked", "the test shows nothing"
        assert world.attempt() == SUCCEEDED
    assert (world.run.step, world.run.trainers) == (STEPS, 2)
    assert world.run.durable is not None
    assert world.run.durable.step == STEPS
    left = _folders(world)
    assert all(folder.complete for folder in left), "parts of a torn checkpoint stay"
    assert len(left) <= CHECKPOINTS["keepLast"]
    batches = world.stores.batches.lineage(world.run.head_batch)
    assert [batch.step for batch in batches] == list(range(1, STEPS + 1))


def _folders(world: World) -> list[Folder]:
    root = f"{world.stores.run_prefix(RUN)}checkpoints/"
    return retention.folders(world.stores.objects.list(root), root=root)
