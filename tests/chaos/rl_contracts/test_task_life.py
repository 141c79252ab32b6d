"""The same lives as the contract tier's, many more and longer, with shrinking."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.contract.rl_contracts.tasks.task_life import play

LONG = settings(
    max_examples=150,
    stateful_step_count=80,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.timeout(1800)
def test_no_interleaving_loses_or_doubles_a_task_in_the_long_run(
    stores: Stores, store_settings: StoreSettings
) -> None:
    play(store_settings, settings=LONG)
