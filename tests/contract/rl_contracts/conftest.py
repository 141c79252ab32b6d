"""Fixtures of the tests of the hub, and of the stores behind a front."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_contracts.stores.connect import Stores
from tests.contract.rl_contracts.hub.hub_pods import (
    NEW,
    OLD,
    Pods,
)
from tests.contract.rl_contracts.plans import asked as asked
from tests.models.tiny_model import save_tiny
from tests.network.hub import FakeHub, files_in, serving
from tests.network.mongo_front import Front, front_before
from tests.servers import StoreServer


@pytest.fixture
def front(store_server: StoreServer) -> Iterator[Front]:
    with front_before(store_server.uri) as front:
        yield front


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    files = files_in(save_tiny(tmp_path_factory.mktemp("hub") / "tiny"))
    return files | {"README.md": b"# Tiny", "modeling_tiny.py": b"raise SystemExit"}


@pytest.fixture
def hub(files: dict[str, bytes]) -> Iterator[FakeHub]:
    moved = files | {"generation_config.json": b'{"temperature": 0.5}'}
    with serving(FakeHub({OLD: files, NEW: moved}, {"main": OLD, "v1": OLD})) as served:
        yield served


@pytest.fixture
def pods(stores: Stores, hub: FakeHub, tmp_path: Path) -> Pods:
    return Pods(stores, hub, tmp_path)
