"""Every version of a long run is the trainer's tensors, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_contracts.spec.storage import Delta
from rl_contracts.stores.connect import Stores
from tests.contract.policy_broadcast.training import follow_training
from tests.contract.policy_broadcast.world import Line


@pytest.mark.parametrize("rate", [1e-6, 3e-6, 1e-5])
def test_two_hundred_optimizer_steps(stores: Stores, tmp_path: Path, rate: float) -> None:
    line = Line(stores.objects, delta=Delta(anchor_every=10, max_fraction=1.0))
    changes = follow_training(line, tmp_path, stores.objects, rate=rate, steps=200)
    assert len(changes) == 200
    assert min(changes) > 0, "no step changed anything: the test shows nothing"
