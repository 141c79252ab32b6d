"""The contract tier's engine and pods, and a bucket server that a test may stop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.rl_sampler.conftest import (
    engine_server,
    fork_server,
    make_pod,
    play_killed,
    tiny_model,
    trainer,
)
from tests.servers import MinioServer, running_minio

__all__ = [
    "engine_server",
    "fork_server",
    "make_pod",
    "own_minio",
    "play_killed",
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
