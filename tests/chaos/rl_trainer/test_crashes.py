"""Crashes between any two commands, drawn from other seeds than the contract lane's."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.contract.rl_trainer.durability.test_crashes import check_crashes
from tests.contract.rl_trainer.world import World


@pytest.mark.parametrize("seed", range(2, 8))
def test_crashes_between_any_two_commands_lose_nothing(
    seed: int,
    stores: Stores,
    store_settings: StoreSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make = partial(World.make, tmp_path, stores, store_settings)
    check_crashes(seed, make, monkeypatch)
