"""Two trainers, the older one paused before and after every kind of command that it sends."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rl_contracts.stores.connect import Stores
from tests.contract.rl_trainer.durability import fencing
from tests.contract.rl_trainer.durability.fencing import TRAINING
from tests.contract.rl_trainer.durability.pausing import Point, Trainers, running_trainers
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World
from tests.servers import MinioServer, StoreServer, settings_of

MODES = (fencing.both_take_turns, fencing.old_resumes_last)
QUIET = ("asking for", "reading its clock", "indexing")
"""Commands that change nothing and come between the same two that do."""
MakeWorld = Callable[[str], World]
Mode = Callable[[World, Trainers, Point], bool]


@pytest.fixture(scope="module")
def trainers() -> Iterator[Trainers]:
    with running_trainers() as started:
        yield started


@contextmanager
def worlds(folder: Path, store: StoreServer, minio: MinioServer) -> Iterator[MakeWorld]:
    """Makes runs, each with stores of its own."""
    made: list[Stores] = []

    def make(name: str) -> World:
        for stores in made:
            stores.close()
        (folder / name).mkdir()
        settings = settings_of(store, minio)
        made[:] = [Stores.connect(settings, patience_seconds=20)]
        made[0].mongo.ensure_indexes()
        made[0].objects.make_bucket()
        return World.make(folder / name, made[0], settings, **TRAINING)

    try:
        yield make
    finally:
        for stores in made:
            stores.close()


@pytest.fixture
def a_world(
    tmp_path: Path, store_server: StoreServer, minio_server: MinioServer
) -> Iterator[MakeWorld]:
    with worlds(tmp_path, store_server, minio_server) as make:
        yield make


@pytest.fixture(scope="module")
def sent(
    trainers: Trainers,
    tmp_path_factory: pytest.TempPathFactory,
    store_server: StoreServer,
    minio_server: MinioServer,
) -> Counter[str]:
    """Every kind of command that a whole attempt sends, and how often."""
    with worlds(tmp_path_factory.mktemp("sent"), store_server, minio_server) as make:
        world = make("recorded")
        with sampling(TestSampler(world.stores, RUN)):
            assert trainers.start(world).await_end() == 0
        lines = (world.folder / "commands.txt").read_text().splitlines()
    counts = Counter(line for line in lines if not line.startswith(QUIET))
    assert len(counts) > 20
    return counts


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.__name__)
def test_a_trainer_paused_anywhere_is_fenced_out(
    a_world: MakeWorld, trainers: Trainers, sent: Counter[str], mode: Mode, when: str
) -> None:
    pauses = 0
    for number, (doing, count) in enumerate(sent.items()):
        point = Point(re.escape(doing), when, min(count, 2))
        try:
            pauses += mode(a_world(str(number)), trainers, point)
        except Exception as error:
            raise AssertionError(str(point)) from error
    sys.stdout.write(f"{len(sent)} kinds of commands, {pauses} pauses\n")
    assert 2 * pauses > len(sent)
