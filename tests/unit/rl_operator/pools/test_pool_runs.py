"""Pods of a shared pool as several runs see them: which are of no use, and what is told of each."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rl_contracts.documents.run import PolicyPointer
from rl_contracts.spec.pool_status import AssignmentStatus, SamplerPoolStatus
from rl_contracts.spec.resources import SamplerPoolSpec
from rl_operator.apply.status_writer import is_urgent_for_pool
from rl_operator.kube.kinds import Key
from rl_operator.kube.timestamps import format_time
from rl_operator.pools import status
from rl_operator.pools.assignment import Allocation
from rl_operator.pools.runs import Served, by_pod, faults, unserved
from rl_operator.state.deployment_state import DeploymentState
from rl_operator.state.pod import Pod
from rl_operator.state.progress import Reading
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

SINCE = format_time(NOW - 60)
LONG_AGO = NOW - 1000


def sampler(pod: str, *, step: int = 5, **changes: Any) -> Any:
    values = {"version": step, "step": step, "groups_running": 2, "state": "ready", **changes}
    return a_sampler(f"{pod}-s", pod=pod, **values)


def reading(*samplers: Any, step: int = 5, known: bool = True) -> Reading:
    policy = PolicyPointer(version=step, epoch=1, step=step, prefix="p/", manifest_sha256="0")
    read = a_reading(a_run_document(policy=policy, step=step), samplers=samplers)
    return read if known else Reading()


def served(*readings: Reading) -> list[Served]:
    jobs = (a_job_object(meta=a_meta(f"job{number}")) for number in range(len(readings)))
    return [Served(job, reading) for job, reading in zip(jobs, readings, strict=True)]


PODS = [a_pod("sampler", name=name, uid=name, started_at=LONG_AGO) for name in "ab"]
FAULTY: dict[str, tuple[list[Reading], list[str] | None]] = {
    "both runs hear of both pods": ([reading(sampler("a"), sampler("b"))] * 2, []),
    "one run does not hear of a pod": (
        [reading(sampler("a")), reading(sampler("a"), sampler("b"))],
        [],
    ),
    "nobody hears of a pod": ([reading(sampler("a")), reading(sampler("a"))], ["b"]),
    "stale for one run, silent for the other": (
        [reading(sampler("a"), sampler("b"), step=900), reading(sampler("a"))],
        ["b"],
    ),
    "one run's stores do not answer": ([reading(), reading(known=False)], None),
    "one run alone": ([reading(sampler("a"))], ["b"]),
}


@pytest.mark.parametrize(("readings", "wanted"), FAULTY.values(), ids=FAULTY.keys())
def test_pod_is_faulty_only_if_it_is_for_every_run(
    readings: list[Reading], wanted: list[str] | None
) -> None:
    faulty = faults(PODS, served(*readings), now=NOW)
    assert (faulty if faulty is None else [fault.pod.name for fault in faulty]) == wanted


@pytest.mark.parametrize(
    ("on_timeout", "wanted"),
    [
        ("Recreate", [("a", "Stale", False), ("b", "Silent", False)]),
        ("Exclude", [("b", "Silent", False)]),
        ("Fail", [("a", "Stale", True), ("b", "Silent", False)]),
    ],
)
def test_on_timeout_decides_about_late_samplers(
    on_timeout: str, wanted: list[tuple[str, str, bool]]
) -> None:
    job = a_job_object(weightSync={"onTimeout": on_timeout})
    heard = dataclasses.replace(reading(sampler("a")), run=reading(step=900).run)
    faulty = faults(PODS, [Served(job, heard)], now=NOW)
    assert faulty is not None
    assert [(fault.pod.name, fault.reason, fault.ends_run) for fault in faulty] == wanted


NO_POLICY = a_reading(a_run_document(policy=None))
UNSERVED: dict[str, tuple[list[Reading], bool]] = {
    "the run has not begun": ([a_reading()], True),
    "its trainer loads": ([NO_POLICY], True),
    "it has a policy": ([reading()], False),
    "its stores do not answer": ([Reading()], False),
    "two runs without a policy": ([NO_POLICY, a_reading()], True),
    "another run has a policy": ([NO_POLICY, reading()], False),
    "the stores of another run do not answer": ([NO_POLICY, Reading()], False),
}


@pytest.mark.parametrize(("readings", "wanted"), UNSERVED.values(), ids=UNSERVED.keys())
def test_a_pool_is_unserved_while_all_of_its_runs_are_known_to_have_no_policy(
    readings: list[Reading], wanted: bool
) -> None:
    assert unserved(readings) is wanted


def test_running_groups_of_a_pod_are_summed_over_runs() -> None:
    first, other = reading(sampler("a"), sampler("b")), reading(sampler("b"), sampler("c"))
    assert {each.pod: each.groups_running for each in by_pod([first, other])} == {
        "a": 2,
        "b": 4,
        "c": 2,
    }


def holder(name: str) -> AssignmentStatus:
    return AssignmentStatus(job=name, uid=f"{name}-uid", run=f"{name}-uid", since=SINCE)


def a_shared_snapshot(pods: list[Pod], **status: Any) -> PoolSnapshot:
    spec = {"model": {"uri": "s3://rl-data/models/arithmetic"}, "replicas": 2, "maxRuns": 2}
    pool = Pool(
        meta=a_meta("shared", uid="p"),
        spec=SamplerPoolSpec.model_validate(spec),
        spec_error="",
        status=SamplerPoolStatus(**status),
    )
    first, second = (a_job_object(meta=a_meta(name, uid=f"{name}-uid")) for name in ("one", "two"))
    key = Key("SamplerPool", "ns", "shared")
    return PoolSnapshot(key=key, pool=pool, job=first, beside=(second,), pods=tuple(pods))


def test_status_has_counters_of_each_run() -> None:
    allocation = Allocation(epoch=3, began=2, holders=(holder("one"), holder("two")))
    snapshot = a_shared_snapshot(PODS)
    own = reading(sampler("a"), sampler("b", step=4))
    two = reading(sampler("a", step=8), step=9)
    after = status.compute(
        snapshot, own, stall=None, replicas=2, allocation=allocation, others=[two], now=NOW
    )
    assert (after.assignment, after.beside) == (holder("one"), [holder("two")])
    assert [(each.job, each.serving, each.version, each.lag) for each in after.runs] == [
        ("one", 2, 4, 1),
        ("two", 1, 8, 1),
    ]
    assert (after.version, after.target_version) == (4, 5), "of the first"
    (assigned,) = (each for each in after.conditions if each.type == "Assigned")
    assert "RLJob ns/one has it" in assigned.message
    assert "RLJob ns/two has it" in assigned.message
    unknown = status.compute(
        dataclasses.replace(snapshot, pool=dataclasses.replace(snapshot.pool, status=after)),
        own,
        stall=None,
        replicas=2,
        allocation=allocation,
        others=[Reading()],
        now=NOW,
    )
    assert unknown.runs[0] == after.runs[0]
    served = (unknown.runs[1].serving, unknown.runs[1].version, unknown.runs[1].lag)
    assert served == (None, None, None), "nobody tells"
    assert unknown.runs[1].target_version == after.runs[1].target_version
    moved = [run.model_copy(update={"lag": 7}) for run in after.runs]
    later = after.model_copy(update={"runs": moved})
    assert not is_urgent_for_pool(after, later), "numbers"
    assert is_urgent_for_pool(after, after.model_copy(update={"runs": moved[:1]}))


@pytest.mark.parametrize(("pods", "serving"), [(PODS, None), ([], 0)], ids=["pods", "no pods"])
def test_pool_counters_are_unknown_while_the_store_is_down(
    pods: list[Pod], serving: int | None
) -> None:
    before = status.compute(
        a_shared_snapshot(PODS),
        reading(sampler("a"), sampler("b", step=4)),
        stall=None,
        replicas=2,
        now=NOW,
    )
    assert (before.serving, before.lagging, before.version, before.lag) == (2, 0, 4, 1)
    snapshot = a_shared_snapshot(pods, **before.model_dump())
    after = status.compute(snapshot, Reading(), stall=None, replicas=2, now=NOW)
    assert (after.serving, after.lagging, after.version, after.lag) == (serving,) * 4
    assert after.target_version == before.target_version


LATE = DeploymentState(exists=True, replicas=2, updated=2, stuck="It has timed out progressing.")


BOTH = (sampler("a"), sampler("b"))
REPORTED: dict[str, tuple[Reading, bool]] = {
    "they wait for the first policy": (dataclasses.replace(NO_POLICY, samplers=BOTH), False),
    "one has not registered": (dataclasses.replace(NO_POLICY, samplers=BOTH[:1]), True),
    "a policy is published": (reading(*BOTH), True),
}


@pytest.mark.parametrize(("read", "reported"), REPORTED.values(), ids=REPORTED.keys())
def test_a_rollout_past_its_deadline_is_no_fault_of_pods_that_wait_for_a_policy(
    read: Reading, reported: bool
) -> None:
    snapshot = dataclasses.replace(a_shared_snapshot(PODS), deployment=LATE, beside=())
    after = status.compute(snapshot, read, stall=None, replicas=2, now=NOW)
    (ready,) = (each for each in after.conditions if each.type == "Ready")
    assert ready.message.startswith("0 of 2 pods are ready.")
    assert (LATE.stuck in ready.message) is reported


def test_runs_that_join_are_urgent_in_the_status() -> None:
    alone = SamplerPoolStatus(assignment=holder("one"))
    both = alone.model_copy(update={"beside": [holder("two")]})
    assert is_urgent_for_pool(alone, both)


def test_single_run_has_no_run_entries() -> None:
    allocation = Allocation(epoch=3, began=3, holders=(holder("one"),))
    snapshot = dataclasses.replace(a_shared_snapshot(PODS), beside=())
    after = status.compute(
        snapshot, reading(), stall=None, replicas=2, allocation=allocation, now=NOW
    )
    assert (after.beside, after.runs) == ([], [])
