"""Two runs share a pool of real engines, one after the other."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from rl_contracts.ids import RunId
from rl_contracts.spec.resources import API_VERSION
from rl_operator.kube.names import POOL_LABEL, RUN_LABEL
from rl_operator.kube.timestamps import parse_time
from tests.cluster.lab import Lab
from tests.cluster.manifests import EXAMPLE, short_job
from tests.cluster.waiting import until
from tests.waiting import HUNG_SECONDS

log = logging.getLogger(__name__)

POOL = "taken-in-turns"
JOBS = ("turn-first", "turn-second")
TURNS = 4
"""The pool is given twice and given back twice."""
COMPLETE_SECONDS = 3 * HUNG_SECONDS

pytestmark = pytest.mark.timeout(3 * COMPLETE_SECONDS)


@pytest.fixture
def jobs(lab: Lab) -> Iterator[tuple[str, str]]:
    """The second one comes when the first one has the pool."""
    spec = {
        "model": EXAMPLE["spec"]["model"],
        "replicas": 1,
        "template": {**EXAMPLE["spec"]["samplers"][0]["template"], "autoscaling": {}},
    }
    metadata = {"name": POOL}
    lab.apply(
        {"apiVersion": API_VERSION, "kind": "SamplerPool", "metadata": metadata, "spec": spec}
    )
    changes = {
        "samplers__0__template": None,
        "samplers__0__poolRef": {"name": POOL},
        "training__steps": 2,
    }
    lab.apply(short_job(JOBS[0], **changes))
    until(lambda: holder(lab).get("job") == JOBS[0], what="the pool to be given")
    lab.apply(short_job(JOBS[1], **changes))
    yield JOBS
    lab.delete("rljob", *JOBS)
    lab.delete("samplerpool", POOL)


def holder(lab: Lab) -> dict[str, str]:
    """The assignment of the pool; empty while it has none."""
    assignment: dict[str, str] = (
        lab.get("samplerpool", POOL).get("status", {}).get("assignment") or {}
    )
    return assignment


def runs_with_pods(lab: Lab) -> set[str]:
    pods = lab.get("pods", "-l", f"{POOL_LABEL}={POOL}")["items"]
    return {pod["metadata"]["labels"][RUN_LABEL] for pod in pods}


def pods_heard(lab: Lab, run: str) -> set[str]:
    """Pods that ever registered for a run."""
    with lab.stores() as stores:
        return {sampler.pod for sampler in stores.samplers.of_run(RunId(run))}


def seconds_between(earlier: str | None, later: str | None) -> float:
    began, ended = parse_time(earlier), parse_time(later)
    assert began is not None
    assert ended is not None
    return ended - began


def tell_costs(lab: Lab, first: str, second: str, *, given: str) -> None:
    """Log what the change of hands took, in whole seconds."""
    ended, status = lab.job(first).status.completion_time, lab.job(second).status
    for what, time in (
        ("the pool is the next run's", given),
        ("its trainer's start", status.start_time),
        ("its end", status.completion_time),
    ):
        log.info("%.0f s from the first run's end to %s", seconds_between(ended, time), what)


def test_two_runs_have_one_pool_in_turn(lab: Lab, jobs: tuple[str, str]) -> None:
    first, second = jobs

    def waits() -> bool:
        condition = lab.condition(second, "PoolAssigned")
        if condition is None or (condition.status, condition.reason) != ("False", "WaitingForPool"):
            return False
        return f"SamplerPool {POOL} serves RLJob {first} since" in condition.message

    until(waits, what="the second job to wait", seen=lambda: lab.job(second).status.conditions)

    seen: set[str] = set()
    given: list[str] = []

    def over() -> bool:
        runs = runs_with_pods(lab)
        assert len(runs) <= 1, f"pods of two runs: {runs}"
        seen.update(runs)
        has = holder(lab)
        if has.get("job") == second:
            given[:] = [has["since"]]
        condition = lab.condition(second, "Complete")
        return condition is not None and condition.status == "True"

    def state() -> Any:
        return [lab.job(job).status.model_dump(mode="json", by_alias=True) for job in jobs]

    until(over, what=f"{second} to be complete", seconds=COMPLETE_SECONDS, seen=state)
    runs = [str(lab.job(job).status.run_id) for job in jobs]
    assert seen <= set(runs)
    heard = [pods_heard(lab, run) for run in runs]
    assert all(heard)
    assert heard[0].isdisjoint(heard[1]), "a pod served both"
    tell_costs(lab, first, second, given=given[0])

    def idle() -> bool:
        status = lab.get("samplerpool", POOL)["status"]
        back = (status["assignmentEpoch"], status.get("assignment")) == (TURNS, None)
        return back and not runs_with_pods(lab)

    until(idle, what="an idle pool without pods", seen=lambda: lab.get("samplerpool", POOL))
    assert lab.get("samplerpool", POOL)["spec"]["replicas"] == 1
