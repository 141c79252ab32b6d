"""Tasks, claims, crashes, clock jumps, late writes and lost replies, as hypothesis draws them."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings

from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.contract.rl_contracts.tasks.task_life import play

SHORT = settings(
    max_examples=8,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.generate],  # the chaos tier plays more and shrinks
)


@pytest.mark.soak
def test_no_interleaving_loses_or_doubles_a_task(
    stores: Stores, store_settings: StoreSettings
) -> None:
    play(store_settings, settings=SHORT)
