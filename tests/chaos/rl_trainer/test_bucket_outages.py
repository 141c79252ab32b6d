"""The bucket goes away for one rank alone: that rank waits for it, and the others for the rank."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rl_contracts import env
from rl_contracts.stores.connect import Stores
from rl_trainer.attempt import FAILED, SUCCEEDED
from tests.contract.rl_trainer.distributed.test_team import codes, two_pods
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World
from tests.network.relay import Relay, relayed
from tests.servers import MinioServer, StoreServer, settings_of
from tests.waiting import HUNG_SECONDS

AWAY_SECONDS, LONG_SECONDS, PATIENCE_SECONDS = 1.0, 20.0, 4.0
STEPS = 3
WRITTEN = ("/policies/", "/checkpoints/", "/exports/")
"""What all ranks write together, by its folder in the bucket."""


@pytest.fixture
def world(tmp_path: Path, store_server: StoreServer, minio_server: MinioServer) -> Iterator[World]:
    """A run that exports the model of its second step."""
    settings = settings_of(store_server, minio_server)
    with closing(Stores.connect(settings, patience_seconds=HUNG_SECONDS)) as stores:
        stores.objects.make_bucket()
        checkpoint = {"everySteps": 1, "exportEverySteps": 2}
        yield World.make(tmp_path, stores, settings, steps=STEPS, checkpoint=checkpoint)


@pytest.fixture
def relay(minio_server: MinioServer) -> Iterator[Relay]:
    """The other rank's way to the bucket."""
    port = urlsplit(minio_server.endpoint).port
    assert port is not None
    with relayed(port) as made:
        yield made


@pytest.fixture
def by_relay(world: World, relay: Relay) -> dict[str, str]:
    """What the other rank's pod has in its environment."""
    folder = world.folder / "by-relay"
    folder.mkdir()
    endpoint = f"http://127.0.0.1:{relay.port}"
    for key, value in (world.settings.to_mapping() | {"s3Endpoint": endpoint}).items():
        (folder / key).write_text(value)
    return {env.STORES_FOLDER: str(folder)}


def writes(line: bytes, folder: str) -> bool:
    """Whether a request writes a file of weights or state there."""
    return line.startswith(b"PUT ") and folder.encode() in line and b".safetensors" in line


def cut_at_first(relay: Relay, folders: Sequence[str], *, seconds: float) -> list[str]:
    """Cut the way at the first file in each folder, for so long; gives those not yet written."""
    left = [*folders]

    def cut(line: bytes) -> bool:
        begun = [folder for folder in left if writes(line, folder)]
        for folder in begun:
            left.remove(folder)
            threading.Timer(seconds, relay.mend).start()
        return bool(begun)

    relay.cut_by = cut
    return left


def test_a_rank_waits_as_rank_0_does_and_an_outage_that_lasts_has_the_same_reason(
    world: World, relay: Relay, by_relay: dict[str, str]
) -> None:
    """The first policy and checkpoint wait; the export, a command for all ranks, never ends."""
    left = cut_at_first(relay, WRITTEN[:2], seconds=AWAY_SECONDS)
    relay.refuses = lambda line: writes(line, "/exports/")
    with (
        sampling(TestSampler(world.stores, RUN)),
        two_pods(world, other=by_relay, patience_seconds=PATIENCE_SECONDS) as pair,
    ):
        assert codes(pair) == [FAILED, FAILED]
    assert left == []
    assert world.run.policy is not None
    check_lasting(world, "/exports/")


def check_lasting(world: World, folder: str) -> None:
    """The outcome names the store, the rank and what it wrote."""
    assert (world.outcome.kind, world.outcome.reason) == ("Failed", "StoreUnavailable")
    assert world.outcome.message.startswith("Rank 1 of the trainer: bucket did not answer while ")
    assert folder in world.outcome.message


def test_one_attempt_outlives_an_outage_in_everything_that_ranks_write(
    world: World, relay: Relay, by_relay: dict[str, str]
) -> None:
    left = cut_at_first(relay, WRITTEN, seconds=LONG_SECONDS)
    with sampling(TestSampler(world.stores, RUN)), two_pods(world, other=by_relay) as pair:
        assert codes(pair) == [SUCCEEDED, SUCCEEDED]
    assert left == []
    assert (world.run.trainers, world.run.step) == (1, STEPS)
    assert world.run.durable is not None
    assert world.run.durable.step == STEPS
    exported = world.stores.objects.list(f"{world.stores.run_prefix(RUN)}exports/")
    assert any(each.key.endswith("manifest.json") for each in exported)


def test_an_outage_that_lasts_in_a_checkpoint_has_the_reason_of_one_on_rank_0(
    world: World, relay: Relay, by_relay: dict[str, str]
) -> None:
    relay.refuses = lambda line: writes(line, "/checkpoints/")
    with (
        sampling(TestSampler(world.stores, RUN)),
        two_pods(world, other=by_relay, patience_seconds=PATIENCE_SECONDS) as pair,
    ):
        assert codes(pair) == [FAILED, FAILED]
    check_lasting(world, "/checkpoints/")
