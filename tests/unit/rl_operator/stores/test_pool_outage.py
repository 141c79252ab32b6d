"""What a SamplerPool says while the document store is away, and how often it is written."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.documents.run import PolicyPointer
from rl_contracts.spec.pool_status import AssignmentStatus, SamplerPoolStatus
from rl_contracts.spec.resources import SamplerPoolSpec
from rl_contracts.spec.status import Condition
from rl_operator.apply.status_writer import is_urgent_for_pool
from rl_operator.kube.conditions import find
from rl_operator.kube.kinds import SAMPLER_POOL, Key
from rl_operator.kube.timestamps import format_time
from rl_operator.pools import status
from rl_operator.pools.assignment import Allocation
from rl_operator.state.progress import Reach, Reading
from rl_operator.state.snapshot import Pool, PoolSnapshot
from tests.samples.documents import a_sampler
from tests.unit.rl_operator.builders import (
    NOW,
    a_job_object,
    a_meta,
    a_pod,
    a_reading,
    a_run_document,
)
from tests.unit.rl_operator.status_inputs import DOWN
from tests.unit.rl_operator.written import outage, written

POLICY = PolicyPointer(version=5, epoch=1, step=5, prefix="p/", manifest_sha256="0")
SERVES = a_sampler("a", pod="sampler-pod", version=5, step=5)
TOLD = a_reading(a_run_document(policy=POLICY, step=5), samplers=(SERVES,))
AWAY = Reading(store=DOWN)
UNCONFIGURED = Reading(store=Reach("Unknown", "StoresSecretMissing", "No Secret rl-stores."))
PODS = (a_pod("sampler"),)
ALLOCATION = Allocation(
    epoch=3,
    began=2,
    holders=tuple(
        AssignmentStatus(job=name, uid=name, run=name, since=format_time(NOW))
        for name in ("one", "two")
    ),
)


def a_pool(status: SamplerPoolStatus | None = None, *, shared: bool = False) -> PoolSnapshot:
    own = {"job": "job", "replicas": 1}
    spec = (
        {"model": {"uri": "s3://rl-data/models/m"}, "replicas": 1, "maxRuns": 2} if shared else own
    )
    pool = Pool(
        meta=a_meta("job-main"),
        spec=SamplerPoolSpec.model_validate(spec),
        spec_error="",
        status=status or SamplerPoolStatus(observed_generation=1),
    )
    beside = (a_job_object(meta=a_meta("two")),) if shared else ()
    key = Key(SAMPLER_POOL.name, "ns", "job-main")
    return PoolSnapshot(key=key, pool=pool, job=a_job_object(), beside=beside, pods=PODS)


def status_of(snapshot: PoolSnapshot, reading: Reading, **changes: Any) -> SamplerPoolStatus:
    return status.compute(snapshot, reading, stall=None, replicas=1, now=NOW, **changes)


def store_of(status: SamplerPoolStatus) -> Condition | None:
    return find(status.conditions, "StateStoreReachable")


def test_a_pool_says_that_the_store_is_away_and_what_is_not_known_for_that() -> None:
    before = status_of(a_pool(), TOLD)
    assert (store_of(before), before.serving) == (None, 1)
    away = status_of(a_pool(before), AWAY)
    store_condition = store_of(away)
    assert store_condition is not None
    assert (store_condition.status, store_condition.reason) == ("False", "StateStoreUnreachable")
    assert store_condition.message == (
        "db:27017: Connection refused. Which policies the pods serve is unknown until it answers."
    )
    assert (away.serving, away.version, away.target_version) == (None, None, 5)
    assert find(away.conditions, "Ready") == find(before.conditions, "Ready"), "of its pods"
    assert status_of(a_pool(away), TOLD) == before


def test_a_pool_of_stores_that_nobody_has_configured_says_so() -> None:
    store_condition = store_of(status_of(a_pool(), UNCONFIGURED))
    assert store_condition is not None
    assert (store_condition.status, store_condition.reason) == ("Unknown", "StoresSecretMissing")


def test_of_a_store_that_nobody_asks_nothing_is_said() -> None:
    assert store_of(status_of(a_pool(), Reading())) is None


@pytest.mark.parametrize("readings", [(AWAY, TOLD), (TOLD, AWAY)], ids=["first", "second"])
def test_a_shared_pool_says_that_the_store_of_one_of_its_runs_is_away(
    readings: tuple[Reading, Reading],
) -> None:
    first, second = readings
    after = status_of(a_pool(shared=True), first, others=[second], allocation=ALLOCATION)
    store_condition = store_of(after)
    assert store_condition is not None
    assert (store_condition.status, store_condition.reason) == ("False", "StateStoreUnreachable")
    assert [run.serving for run in after.runs] == [
        1 if reading.known else None for reading in readings
    ]
    assert len({condition.type for condition in after.conditions}) == len(after.conditions)


def test_an_outage_is_one_write_as_it_begins_and_one_as_it_ends() -> None:
    statuses = written(
        SAMPLER_POOL,
        status_of(a_pool(), TOLD),
        [TOLD, *outage(20), *[TOLD] * 10],
        lambda before, reading: status_of(a_pool(before), reading),
        is_urgent_for_pool,
    )
    shown = [
        (
            "serving" in status,
            "StateStoreReachable" in {each["type"] for each in status["conditions"]},
        )
        for status in statuses
    ]
    assert shown == [(False, True), (True, False)]


def test_that_the_store_is_away_waits_as_the_numbers_do_that_go_with_it() -> None:
    before = status_of(a_pool(), TOLD)
    away = status_of(a_pool(before), AWAY)
    assert not is_urgent_for_pool(before, away)
    assert not is_urgent_for_pool(away, before)
