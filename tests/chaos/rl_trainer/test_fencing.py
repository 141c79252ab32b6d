"""Two trainers, the older one paused before and after every kind of command that it sends."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rl_contracts.stores.connect import Stores
from tests.contract.rl_trainer import fencing
from tests.contract.rl_trainer.fencing import TRAINING
from tests.contract.rl_trainer.pausing import Point, Trainers, running_trainers
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World
from tests.servers import MinioServer, StoreServer, settings_of

MODES = (fencing.both_take_turns, fencing.old_resumes_last)
QUIET = ("asking for", "reading its clock", "indexing")
"""Commands that change nothing and come between the same two that do."""
MakeWorld = Callable[[str], World]


@pytest.fixture(scope="module")
def trainers() -> Iterator[Trainers]:
    with running_trainers() as started:
        yield started


@pytest.fixture
def a_world(
    tmp_path: Path, store_server: StoreServer, minio_server: MinioServer
) -> Iterator[MakeWorld]:
    """Makes runs, each with stores of its own."""
    made: list[Stores] = []

    def make(name: str) -> World:
        for one in made:
            one.close()
        (tmp_path / name).mkdir()
        settings = settings_of(store_server, minio_server)
        made[:] = [Stores.connect(settings, patience_seconds=20)]
        made[0].mongo.ensure_indexes()
        made[0].objects.make_bucket()
        return World.make(tmp_path / name, made[0], settings, **TRAINING)

    yield make
    for one in made:
        one.close()


def phases(world: World, trainers: Trainers) -> Counter[str]:
    """Every kind of command that a whole attempt sends, and how often."""
    with sampling(TestSampler(world.stores, RUN)):
        assert trainers.start(world).await_end() == 0
    lines = (world.folder / "commands.txt").read_text().splitlines()
    return Counter(one for one in lines if not one.startswith(QUIET))


@pytest.mark.timeout(3600)
def test_wherever_the_older_one_sleeps(a_world: MakeWorld, trainers: Trainers) -> None:
    found = phases(a_world("recorded"), trainers)
    assert len(found) > 20
    pauses = 0
    for number, (doing, count) in enumerate(found.items()):
        for when in ("before", "after"):
            point = Point(re.escape(doing), when, min(count, 2))
            for mode in MODES:
                world = a_world(f"{number}-{when}-{mode.__name__}")
                try:
                    pauses += mode(world, trainers, point)
                except Exception as error:
                    raise AssertionError(f"{mode.__name__}: {point}") from error
    sys.stdout.write(f"{len(found)} kinds of commands, {pauses} pauses\n")
    assert pauses > len(found)
