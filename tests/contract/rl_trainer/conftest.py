from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.contract.rl_trainer.world import World

MakeWorld = Callable[..., World]


@pytest.fixture
def make_world(stores: Stores, store_settings: StoreSettings, tmp_path: Path) -> MakeWorld:
    return lambda **training: World.make(tmp_path, stores, store_settings, **training)
