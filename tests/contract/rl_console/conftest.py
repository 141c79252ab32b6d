from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rl_console import app, times
from tests.contract.rl_console.viewing import Viewed, serving
from tests.contract.rl_console.world import World, make
from tests.kube.apiserver import ApiServer
from tests.servers import MinioServer, StoreServer, settings_of

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
"""Before the objects of a test are created: each is 0 s old."""


@pytest.fixture(scope="session")
def world(apiserver: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> World:
    return make(apiserver, tmp_path_factory.mktemp("console"))


@pytest.fixture(scope="session")
def viewed(
    world: World,
    store_server: StoreServer,
    minio_server: MinioServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Viewed]:
    """Runs in real stores, and the operator's endpoint that answers for them."""
    settings = settings_of(store_server, minio_server)
    with serving(world.apiserver, settings, tmp_path_factory.mktemp("readers")) as started:
        yield started


@dataclass(frozen=True, slots=True)
class Done:
    """What a command printed, and how it ended."""

    out: str
    err: str
    code: int


Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line in this process."""
    monkeypatch.setattr(times, "now", lambda: NOW)

    def run(*arguments: str, kubeconfig: Path) -> Done:
        capsys.readouterr()
        code = app.run(["--kubeconfig", str(kubeconfig), *arguments])
        printed = capsys.readouterr()
        return Done(out=printed.out, err=printed.err, code=code)

    return run
