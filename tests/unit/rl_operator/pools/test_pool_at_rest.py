"""A pool is at rest only while nothing but events and its run's progress can change it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rl_contracts.spec.pool_status import SamplerPoolStatus
from rl_contracts.spec.resources import SamplerPoolSpec
from rl_contracts.spec.status import Condition
from rl_operator.kube.kinds import Key
from rl_operator.kube.timestamps import format_time
from rl_operator.reconcile_pool import is_at_rest
from rl_operator.state.snapshot import Pool, PoolSnapshot
from tests.samples.documents import a_sampler
from tests.unit.rl_operator.builders import NOW, a_job_object, a_meta, a_pod, a_reading

READY = SamplerPoolStatus(
    conditions=[
        Condition(
            type="Ready",
            status="True",
            reason="AllReady",
            observed_generation=1,
            last_transition_time=format_time(NOW),
        )
    ]
)


def a_pool_snapshot(*pods: str, **spec: Any) -> PoolSnapshot:
    template = {"autoscaling": {"minReplicas": 1, **spec.pop("autoscaling", {})}}
    parsed = SamplerPoolSpec.model_validate({"job": "job", "template": template, **spec})
    pool = Pool(meta=a_meta("p"), spec=parsed, spec_error="", status=READY)
    observed = tuple(a_pod("sampler", name=pod) for pod in pods)
    return PoolSnapshot(
        key=Key("SamplerPool", "ns", "p"), pool=pool, job=a_job_object(), pods=observed
    )


def not_ready(snapshot: PoolSnapshot) -> PoolSnapshot:
    pool = dataclasses.replace(snapshot.pool, status=SamplerPoolStatus())
    return dataclasses.replace(snapshot, pool=pool)


SHARED = {"job": None, "model": {"uri": "s3://rl-data/models/m"}}
POOLS: dict[str, tuple[PoolSnapshot, bool]] = {
    "all are heard of": (a_pool_snapshot("a"), True),
    "one is not": (a_pool_snapshot("a", "b"), False),
    "jobs share it": (a_pool_snapshot("a", **SHARED), False),
    "it is not ready": (not_ready(a_pool_snapshot("a")), False),
}


@pytest.mark.parametrize(("snapshot", "rests"), POOLS.values(), ids=POOLS.keys())
def test_pool_is_at_rest_while_all_of_its_pods_have_registered(
    snapshot: PoolSnapshot, rests: bool
) -> None:
    reading = a_reading(samplers=(a_sampler("s", pod="a"),))
    assert is_at_rest(snapshot, reading) is rests
