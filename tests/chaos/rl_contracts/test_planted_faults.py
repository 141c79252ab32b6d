"""The life of tasks fails for every planted fault, so what it says of the stores is worth a lot."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings

from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.chaos.rl_contracts.faults import FAULTS
from tests.contract.rl_contracts.tasks.task_life import play

HUNT = settings(
    max_examples=400,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    report_multiple_bugs=False,
    phases=[Phase.generate],
)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", FAULTS)
def test_the_task_model_detects_each_planted_fault(
    monkeypatch: pytest.MonkeyPatch, stores: Stores, store_settings: StoreSettings, fault: str
) -> None:
    FAULTS[fault](monkeypatch)
    with pytest.raises(AssertionError):
        play(store_settings, settings=HUNT)
