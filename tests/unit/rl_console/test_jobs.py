"""Which job a pool is shown with, and which run a job."""

from __future__ import annotations

from typing import Any

import pytest

from rl_console.jobs import JobObject, PoolObject, parse_status
from rl_contracts.spec.status import RLJobStatus

HOLDER = {"job": "has", "uid": "u", "run": "u", "since": "2026-01-01T00:00:00Z"}
OTHER = {"job": "too", "uid": "v", "run": "v", "since": "2026-01-01T00:00:00Z"}
POOLS: dict[str, tuple[dict[str, Any], str]] = {
    "a job's own": ({"spec": {"job": "j", "replicas": 2}}, "j"),
    "a shared one": ({"spec": {"replicas": 2}, "status": {"assignment": HOLDER}}, "has"),
    "a shared one that nobody has": ({"spec": {"replicas": 2}}, ""),
}


@pytest.mark.parametrize(("raw", "job"), POOLS.values(), ids=POOLS.keys())
def test_a_pool_is_shown_with_the_job_that_it_serves(raw: dict[str, Any], job: str) -> None:
    pool = PoolObject.parse({"metadata": {"name": "p"}, **raw})
    assert (pool.name, pool.job, pool.replicas) == ("p", job, 2)


@pytest.mark.parametrize(("run", "shown"), [("", "uid"), ("uid", "uid"), ("earlier", "earlier")])
def test_a_job_is_shown_with_the_run_that_it_resumes(run: str, shown: str) -> None:
    status = RLJobStatus(run_id=run)
    job = JobObject(name="j", namespace="n", uid="uid", generation=1, status=status)
    assert job.run == shown


def test_a_pool_is_shown_with_the_others_that_it_serves() -> None:
    status = {"assignment": HOLDER, "beside": [OTHER]}
    pool = PoolObject.parse({"metadata": {"name": "p"}, "spec": {}, "status": status})
    assert (pool.job, pool.beside) == ("has", ("too",))


def test_the_status_of_a_newer_operator_is_read_as_far_as_it_is_known() -> None:
    written = {"phase": "Levitating", "attempt": 3, "progress": {"step": 5, "mood": "good"}}
    status = parse_status(RLJobStatus, written)
    assert (status.phase, status.attempt, status.progress.step) == ("Pending", 3, 5)
    assert parse_status(RLJobStatus, None).attempt == 0


def test_a_condition_that_cannot_be_read_hides_no_other() -> None:
    unread = {"type": "Odd", "status": "True", "reason": "x", "lastTransitionTime": "t"}
    failed = {**unread, "type": "Failed", "observedGeneration": 1}
    status = parse_status(RLJobStatus, {"conditions": [unread, failed], "attempts": "several"})
    assert [each.type for each in status.conditions] == ["Failed"]
    assert status.attempts == []
