from __future__ import annotations

import pytest

from rl_contracts.documents.sampler import SamplerState
from tests.samples.documents import a_sampler


@pytest.mark.parametrize(
    ("state", "age", "alive"),
    [
        (SamplerState.READY, 0, True),
        (SamplerState.DRAINING, 14.9, True),
        (SamplerState.READY, 15, False),
        (SamplerState.READY, -119, True),
        (SamplerState.READY, -120, False),
        (SamplerState.GONE, 0, False),
    ],
)
def test_a_sampler_is_alive_by_state_and_heartbeat(
    state: SamplerState, age: float, alive: bool
) -> None:
    sampler = a_sampler(state=state, heartbeat_at=1000.0 - age)
    assert sampler.is_alive(1000.0) is alive
    assert not sampler.is_alive(1000.0 + 3600)
