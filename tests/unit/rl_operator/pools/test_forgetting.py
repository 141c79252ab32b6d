"""Of a pool that is gone nothing is held any more, whatever was known of it."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from rl_operator.kube import kinds
from rl_operator.pools.autoscaler import Evidence
from rl_operator.pools.scaling import PoolScaler
from tests.unit.rl_operator.builders import NOW
from tests.unit.rl_operator.model_turns import KEY, Turns


def test_state_of_a_deleted_pool_is_dropped() -> None:
    turns = Turns()
    scaler = PoolScaler(cluster=cast(Any, turns.api), now=lambda: NOW)
    live = turns._reconciler(cast(Any, turns.api), live=True)
    pools = dataclasses.replace(live, scaler=scaler)
    scaler.evidence[KEY] = ("uid/run", Evidence(replicas=1, since=NOW, first_step=1))
    pools.faulty_since[KEY] = {"pod": 1.0}
    del turns.api.objects[(kinds.SAMPLER_POOL.name, KEY.name)]
    assert pools.reconcile(KEY) is None
    assert (scaler.evidence, pools.faulty_since) == ({}, {})
