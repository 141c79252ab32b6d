from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_trainer.context.heartbeat import Heartbeat
from tests.contract.rl_trainer.world import World

MakeWorld = Callable[..., World]


@pytest.fixture
def make_world(stores: Stores, store_settings: StoreSettings, tmp_path: Path) -> MakeWorld:
    return lambda **training: World.make(tmp_path, stores, store_settings, **training)


@pytest.fixture
def advanced(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the trainer notes progress within a phase, by the function that notes it."""
    times, advance = Counter[str](), Heartbeat.advance

    def counted(heartbeat: Heartbeat) -> None:
        times[sys._getframe(1).f_code.co_name] += 1
        advance(heartbeat)

    monkeypatch.setattr(Heartbeat, "advance", counted)
    return times
