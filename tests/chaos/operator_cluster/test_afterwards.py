"""What remains of a job that is over, and who goes on with its run.

| row | what it shows |
|---|---|
| workers | cleanupPolicy Workers: the last PyTorchJobs stay, as many as attemptHistoryLimit says |
| all | cleanupPolicy All: none stays |
| expires | ttlSecondsAfterFinished: the object goes by itself, its data stay |
| takes | dataPolicy Delete: the finalizer, documents and objects go with it |
| kept | dataPolicy changed to Retain after the end: they stay |
| first, second | a run is refused while its job is there, then goes on where it was |
| rest | nothing is written for longer than the operator's longest interval |
| third | a run that has succeeded makes its adopter Complete at once |
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rl_console.errors import NotFoundError
from rl_console.pods import PodView
from rl_operator.cache.cached_reader import REPAIR_SECONDS
from rl_operator.kube.names import COMPONENT_LABEL
from rl_operator.render.reader import COMPONENT as READER
from tests.chaos.operator_cluster.jobs import (
    COMPLETE_SECONDS,
    TRAINED,
    attempts,
    await_gone,
    await_phase,
    patch,
    taught_job,
)
from tests.cluster.lab import Lab
from tests.cluster.waiting import until
from tests.cluster.world import check_rest

pytestmark = pytest.mark.timeout(2 * COMPLETE_SECONDS)
TWICE = "1=exit:1 2=exit:1 *=succeed"
JOBS: dict[str, dict[str, Any]] = {
    "workers": {"faults": TWICE, "lifecycle__attemptHistoryLimit": 1},
    "all": {"faults": TWICE, "lifecycle__cleanupPolicy": "All"},
    "expires": {"faults": "*=succeed", "lifecycle__ttlSecondsAfterFinished": 5},
    "takes": {"faults": "*=succeed", "lifecycle__dataPolicy": "Delete"},
    "kept": {"faults": "*=succeed", "lifecycle__dataPolicy": "Delete"},
}
FINALIZER = "rl-operator.io/data"
LONGEST_PERIOD_SECONDS = 1.5 * REPAIR_SECONDS
"""The operator lists all objects again after at most 1.25 intervals."""


@pytest.fixture(scope="module")
def uids(lab: Lab) -> Iterator[dict[str, str]]:
    for name, changes in JOBS.items():
        lab.apply(taught_job(name, **changes))
    uids = {name: lab.job(name).uid for name in JOBS}
    yield uids
    lab.delete("rljob", *JOBS, "first", "second", "third")


def exists(lab: Lab, job: str) -> bool:
    try:
        lab.job(job)
    except NotFoundError:
        return False
    return True


def trainers(lab: Lab, job: str) -> list[str]:
    """Names of the PyTorchJobs."""
    pytorchjobs = lab.get("pytorchjobs", "-l", f"rl-operator.io/job={job}")["items"]
    return sorted(pytorchjob["metadata"]["name"] for pytorchjob in pytorchjobs)


def finalizers(lab: Lab, job: str) -> list[str]:
    return list(lab.get("rljob", job)["metadata"].get("finalizers", []))


def has_data(lab: Lab, run: str) -> tuple[bool, bool]:
    """Whether there are documents and objects of a run."""
    with lab.stores() as stores:
        documents = stores.runs.get(run) is not None or bool(stores.batches.of_run(run))
        return documents, bool(stores.objects.list(stores.run_prefix(run)))


@pytest.mark.parametrize(
    ("name", "kept"), [("workers", ["workers-2", "workers-3"]), ("all", [])], ids=["Workers", "All"]
)
def test_cleanup_policy_decides_which_trainer_jobs_stay(
    lab: Lab, uids: dict[str, str], name: str, kept: list[str]
) -> None:
    status = await_phase(lab, name, "Succeeded")
    assert (status.attempt, status.failures) == (3, 2)
    until(
        lambda: trainers(lab, name) == kept, what="the rest to go", seen=lambda: trainers(lab, name)
    )
    left = {pod.attempt for pod in lab.pods(name)}
    assert left <= {2, 3}


def test_expired_job_is_deleted_and_its_data_stay(lab: Lab, uids: dict[str, str]) -> None:
    until(lambda: not exists(lab, "expires"), what="the job to go", seconds=COMPLETE_SECONDS)
    until(lambda: lab.pods("expires") == [], what="its pods to go")
    assert has_data(lab, uids["expires"]) == (True, True)


def test_data_policy_decides_whether_data_are_deleted(lab: Lab, uids: dict[str, str]) -> None:
    for name in ("takes", "kept"):
        await_phase(lab, name, "Succeeded")
        assert finalizers(lab, name) == [FINALIZER]
        assert has_data(lab, uids[name]) == (True, True)
    patch(lab, "kept", '{"lifecycle": {"dataPolicy": "Retain"}}')
    until(lambda: finalizers(lab, "kept") == [], what="the finalizer to go")
    lab.delete("rljob", "takes", "kept")
    assert has_data(lab, uids["takes"]) == (False, False)
    assert has_data(lab, uids["kept"]) == (True, True)


def test_finished_jobs_rest_until_all_periodic_work_has_come_round(
    lab: Lab, uids: dict[str, str]
) -> None:
    def readers() -> list[PodView]:
        return lab.cluster.pods(lab.namespace, f"{COMPONENT_LABEL}={READER}")

    until(lambda: not readers(), what="the reader of the stores to go, which nobody asks any more")
    check_rest(lab, seconds=LONGEST_PERIOD_SECONDS)


def test_run_of_a_deleted_job_is_adopted(lab: Lab, uids: dict[str, str]) -> None:
    lab.apply(taught_job("first", faults="*=work"))
    run = lab.job("first").uid
    await_phase(lab, "first", "Running")
    lab.apply(taught_job("second", faults="*=succeed", runId=run))
    condition = lab.await_condition("second", "Stalled")
    assert condition.reason == "RunInUse"
    assert "RLJob first has this run" in condition.message
    assert lab.pods("second") == []
    lab.delete("rljob", "first")
    status = await_phase(lab, "second", "Succeeded")
    assert (status.run_id, attempts(status)) == (run, [TRAINED])
    with lab.stores() as stores:
        ended = stores.runs.get(run)
    assert ended is not None
    assert ended.trainers == 2

    await_gone(lab, {"second": lab.job("second").uid})
    lab.apply(taught_job("third", runId=run, lifecycle__dataPolicy="Delete"))
    status = await_phase(lab, "third", "Succeeded")
    assert (status.attempt, status.final_model.startswith("s3://")) == (0, True)
    await_gone(lab, {"third": lab.job("third").uid})
    assert has_data(lab, run) == (False, False)


def test_deleted_jobs_leave_nothing_behind(lab: Lab, uids: dict[str, str]) -> None:
    await_gone(lab, uids)
