"""The contract tier's engine and pods, and a bucket server that a test may stop."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from rl_contracts.stores.clients.settings import StoreSettings
from tests.contract.rl_sampler.conftest import (
    engine_server,
    fork_server,
    make_pod,
    play_killed,
    tiny_model,
    trainer,
)
from tests.contract.rl_sampler.episodes import killed
from tests.contract.rl_sampler.episodes.killed import PlayOn
from tests.contract.rl_sampler.fork_server import ForkServer
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.servers import MinioServer, running_minio

__all__ = [
    "engine_server",
    "fork_server",
    "make_pod",
    "own_minio",
    "play_killed",
    "play_on",
    "tiny_model",
    "trainer",
]


@pytest.fixture
def own_minio(tmp_path: Path) -> Iterator[MinioServer]:
    """A bucket server that the test may stop for a while."""
    folder = tmp_path / "minio"
    folder.mkdir()
    with running_minio(folder) as server:
        yield server


@pytest.fixture
def play_on(
    tmp_path: Path,
    trainer: ScriptedTrainer,
    tiny_model: Path,
    store_settings: StoreSettings,
    fork_server: ForkServer,
) -> PlayOn:
    """Plays a group whose sampler lives: ``killed.play_on`` in this test's run."""
    return partial(
        killed.play_on,
        folder=tmp_path,
        trainer=trainer,
        model=tiny_model,
        settings=store_settings,
        fork_server=fork_server,
    )
