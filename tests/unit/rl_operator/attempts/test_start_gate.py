"""A trainer starts when each group has its minimum of samplers, and says until when it waits."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rl_contracts.spec.pool_status import SamplerPoolStatus
from rl_contracts.spec.resources import SamplerPoolSpec
from rl_contracts.spec.status import AttemptStatus, OperationStatus, RLJobStatus
from rl_operator.attempts import start_gate
from rl_operator.kube import names
from rl_operator.kube.timestamps import format_time
from rl_operator.state.snapshot import Job, JobSnapshot, Pool
from rl_operator.status.operation import operation
from rl_operator.status.status_input import StatusInput
from tests.samples.documents import a_sampler
from tests.unit.rl_operator.builders import (
    NOW,
    a_job_object,
    a_meta,
    a_pod,
    a_reading,
    a_snapshot,
)

GROUPS = [
    {"name": "main", "template": {"autoscaling": {"minReplicas": 2}}},
    {"name": "other"},
]
HALTED = RLJobStatus(
    attempt=1, attempts=[AttemptStatus(attempt=1, result="Suspended", start_time="2026-01-01")]
)


def a_job(status: RLJobStatus | None = None) -> Job:
    return a_job_object(status, samplers=GROUPS, lifecycle={"pendingDeadlineSeconds": 60})


def a_pool(
    group: str,
    replicas: int,
    *,
    created_at: float = NOW - 30,
    admitted: int | None = None,
    suspend: bool = False,
) -> Pool:
    return Pool(
        meta=a_meta(f"job-{group}", created_at=created_at),
        spec=SamplerPoolSpec(job="job", replicas=replicas, admitted=admitted, suspend=suspend),
        spec_error="",
        status=SamplerPoolStatus(),
    )


def seen(
    pods: dict[str, str],
    *,
    scale: tuple[int, int] = (2, 1),
    admitted: int | None = None,
    deleting: str = "",
    suspend: bool = False,
    earlier: str = "",
    status: RLJobStatus | None = None,
) -> JobSnapshot:
    """Pods by name with their group, on pools of some size."""
    job = a_job(status)
    spec = job.spec
    assert spec is not None
    return a_snapshot(
        job=job,
        pools=tuple(
            a_pool(group, replicas, admitted=admitted, suspend=suspend)
            for group, replicas in zip(("main", "other"), scale, strict=True)
        ),
        pods=tuple(
            a_pod(
                "sampler",
                name=name,
                pool=f"job-{group}",
                deleting=name == deleting,
                specs=(
                    "job-spec-earlier"
                    if name == earlier
                    else names.spec_config("job", spec, group),
                ),
            )
            for name, group in pods.items()
        ),
    )


ALL = {"m1": "main", "m2": "main", "o1": "other"}
STARTS: dict[str, tuple[JobSnapshot, list[str], str]] = {
    "all there": (seen(ALL), ["m1", "m2", "o1"], ""),
    "nobody": (seen({}), [], "main has 0 of 2, other has 0 of 1"),
    "one has not registered": (seen(ALL), ["m1", "o1"], "main has 1 of 2"),
    "one is going": (seen(ALL, deleting="o1"), ["m1", "m2", "o1"], "other has 0 of 1"),
    "one has the spec before an edit": (
        seen(ALL, earlier="m2"),
        ["m1", "m2", "o1"],
        "main has 1 of 2",
    ),
    "registered without a pod": (
        seen({"m1": "main"}),
        ["m1", "m2", "o1"],
        "main has 1 of 2, other has 0 of 1",
    ),
    "more than the minimum": (seen({**ALL, "m3": "main"}, scale=(3, 1)), ["m1", "m3", "o1"], ""),
    "scaled below the minimum": (seen({"m1": "main"}, scale=(1, 0)), ["m1"], ""),
    "scaled to nothing before the first start": (seen({}, scale=(0, 0)), [], "main has 0 of 1"),
    "admitted anew, and the pools do not say so yet": (
        seen({}, admitted=0, status=HALTED),
        [],
        "main has 0 of 2, other has 0 of 1",
    ),
    "a pool that somebody has suspended": (
        seen({}, suspend=True, status=HALTED),
        [],
        "main has 0 of 2 (its SamplerPool has spec.suspend), "
        "other has 0 of 1 (its SamplerPool has spec.suspend)",
    ),
    "fewer admitted": (seen({"m1": "main", "o1": "other"}, admitted=1), ["m1", "o1"], ""),
    "scaled to nothing before a resumption": (seen({}, scale=(0, 0), status=HALTED), [], ""),
}


@pytest.mark.parametrize(("snapshot", "registered", "message"), STARTS.values(), ids=STARTS.keys())
def test_shortfalls_count_registered_samplers_per_group(
    snapshot: JobSnapshot, registered: list[str], message: str
) -> None:
    reading = a_reading(samplers=tuple(a_sampler(pod, pod=pod) for pod in registered))
    assert snapshot.job.spec is not None
    shortfalls = start_gate.find_shortfalls(snapshot, snapshot.job.spec, reading)
    assert start_gate.describe(shortfalls) == message


def under_way(snapshot: JobSnapshot, **changes: Any) -> OperationStatus | None:
    status_input = StatusInput(snapshot=snapshot, reading=a_reading(), now=NOW, **changes)
    return operation(status_input, snapshot.job.status)


def test_first_start_deadline_counts_from_the_pools_creation() -> None:
    waiting = under_way(seen({}))
    assert waiting is not None
    assert (waiting.kind, waiting.step) == ("Start", "WaitingForSamplers")
    assert waiting.deadline == format_time(NOW - 30 + 60)


def test_no_start_deadline_runs_while_inputs_are_checked() -> None:
    checking = under_way(dataclasses.replace(seen({}), pools=()), checking=True)
    assert checking is not None
    assert (checking.step, checking.deadline) == ("CheckingInputs", None)


def test_resumption_deadline_counts_from_its_own_start() -> None:
    began = under_way(seen({}, status=HALTED))
    assert began is not None
    assert (began.kind, began.deadline) == ("Start", format_time(NOW + 60))
    later = HALTED.model_copy(
        update={"operation": began.model_copy(update={"started_time": format_time(NOW - 50)})}
    )
    again = under_way(seen({}, status=later))
    assert again is not None
    assert again.deadline == format_time(NOW + 10)
    assert start_gate.waits_since(seen({}, status=later)) == NOW - 50


def test_running_attempt_is_no_start_operation() -> None:
    running = RLJobStatus(
        attempt=1, attempts=[AttemptStatus(attempt=1, start_time=format_time(NOW))]
    )
    assert under_way(seen({}, status=running)) is None
    assert not start_gate.applies(running)
