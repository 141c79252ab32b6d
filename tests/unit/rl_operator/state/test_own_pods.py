"""Pods of programs and environments take quota: whatever waits for a job's pods waits for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from rl_contracts.spec.status import RLJobStatus
from rl_operator.jobs.deadlines import requeue_after
from rl_operator.jobs.deletion import proceed
from rl_operator.kube import kinds, names
from rl_operator.kube.kinds import Key
from rl_operator.kueue import admission, workload_status
from rl_operator.state import observe
from rl_operator.state.attempt_records import is_at_rest
from rl_operator.state.decisions import Wait
from rl_operator.state.pod import Pod
from rl_operator.state.snapshot import JobSnapshot
from rl_operator.status.status_input import StatusInput
from tests.kube import kueue
from tests.samples.manifests import a_job
from tests.unit.rl_operator.builders import NOW, a_meta, a_pod, a_snapshot, a_view
from tests.unit.rl_operator.kueue.workloads import child_of, stored
from tests.unit.rl_operator.model_api import NAMESPACE, ModelApi

PROGRAM = a_pod("program", name="job-main-programs-x-1")
GONE: tuple[Pod, ...] = ()


def test_own_pods_are_those_of_the_job_s_programs_and_environments() -> None:
    api = ModelApi()
    run = api.put(kinds.RLJOB, "job", spec=a_job()["spec"])["metadata"]["uid"]
    of_job = {names.JOB_LABEL: "job"}
    pods = {
        "sampler": of_job | {names.RUN_LABEL: run},
        "program": of_job | {names.PROGRAMS_LABEL: "job-main"},
        "environment": of_job | {names.ENVIRONMENTS_LABEL: "job-main"},
        "of another run": of_job | {names.RUN_LABEL: "earlier"},
        "of another job": {names.JOB_LABEL: "other", names.PROGRAMS_LABEL: "other-main"},
    }
    for name, labels in pods.items():
        api.put(kinds.POD, name, metadata={"labels": labels})
    snapshot = observe.job_snapshot(api, Key(kinds.RLJOB.name, NAMESPACE, "job"))
    assert snapshot is not None
    assert [pod.name for pod in snapshot.pods] == ["sampler"]
    assert sorted(pod.name for pod in snapshot.own_pods) == ["environment", "program"]


def rests(snapshot: JobSnapshot) -> bool:
    return is_at_rest(snapshot, snapshot.job.status)


def is_finished(snapshot: JobSnapshot) -> bool:
    workload = admission.parse(child_of(stored(kueue.admitted)))
    return workload_status.ended(snapshot, workload, now=NOW) is not None


def is_deleted(snapshot: JobSnapshot) -> bool:
    job = dataclasses.replace(snapshot.job, meta=a_meta(deleted_at=NOW))
    return proceed(dataclasses.replace(snapshot, job=job), None, None, now=NOW).done  # type: ignore[arg-type]


@pytest.mark.parametrize("happens", [rests, is_finished, is_deleted])
@pytest.mark.parametrize("pods", [GONE, (PROGRAM,)], ids=["gone", "still there"])
def test_what_waits_for_pods_waits_for_own_pods(
    happens: Callable[[JobSnapshot], bool], pods: tuple[Pod, ...]
) -> None:
    assert happens(a_snapshot(RLJobStatus(), own_pods=pods)) is not bool(pods)


def test_a_stopping_job_is_looked_at_again_soon_while_own_pods_end() -> None:
    def again(pods: tuple[Pod, ...]) -> float:
        waits = StatusInput(
            snapshot=a_snapshot(own_pods=pods), decision=Wait(why="Suspended"), now=NOW
        )
        return requeue_after(
            waits, a_view(), status_changed=False, check_inputs_after=None, progress_seconds=5.0
        )

    assert (again((PROGRAM,)), again(GONE) > 60) == (10.0, True)
