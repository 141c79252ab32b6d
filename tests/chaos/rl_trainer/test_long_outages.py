"""A store, then the bucket, away for a minute each at any point of a run of real processes."""

from __future__ import annotations

import os
import random
import threading
from contextlib import closing
from pathlib import Path

import pytest

from rl_contracts.stores.connect import Stores
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World
from tests.samples.orphans import find_orphans
from tests.servers import Server, running_minio, running_store, settings_of
from tests.waiting import until

OUTAGE_SECONDS = float(os.environ.get("RL_OUTAGE_SECONDS", "60"))
STEPS = 24


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_outlives_a_minute_without_store_and_one_without_bucket(
    seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    draw = random.Random(seed)
    for name in ("store", "minio", "world"):
        (tmp_path / name).mkdir()
    with (
        running_store(tmp_path / "store") as store,
        running_minio(tmp_path / "minio") as minio,
    ):
        settings = settings_of(store, minio)
        with closing(Stores.connect(settings, patience_seconds=200)) as stores:
            stores.objects.make_bucket()
            world = World.make(
                tmp_path / "world", stores, settings, steps=STEPS, checkpoint={"everySteps": 3}
            )
            samplers = [
                TestSampler(stores, RUN, name=name, seed=number, pause_seconds=0.1, max_staleness=2)
                for number, name in enumerate("ab")
            ]
            with sampling(*samplers):
                process = world.process()
                try:
                    first = draw.randint(1, STEPS // 3)
                    until(world.at_step(first), what=f"step {first}")
                    away(store.server, draw.uniform(0, 1))
                    assert process.poll() is None, trainer_log(world)
                    second = draw.randint(STEPS // 2, STEPS - 4)
                    until(world.at_step(second), what=f"step {second}")
                    away(minio.server, draw.uniform(0, 1))
                    assert process.wait(timeout=300) == 0, trainer_log(world)
                finally:
                    if process.poll() is None:
                        process.kill()
                        process.wait(timeout=30)
            log = trainer_log(world)
            assert "waiting for the document store while" in log
            # A trainer with nothing to publish then waits for samplers, and they for the bucket.
            assert "waiting for the bucket while" in log + caplog.text
            assert (world.run.trainers, world.run.step) == (1, STEPS)
            world.check_lineage()
            assert not find_orphans(stores.mongo, RUN)


def trainer_log(world: World) -> str:
    return (world.folder / "trainer.log").read_text()


def away(server: Server, delay: float) -> None:
    """Kill it at no particular moment, and start it again after the outage."""
    threading.Event().wait(delay)
    server.kill()
    threading.Event().wait(OUTAGE_SECONDS)
    server.start()
