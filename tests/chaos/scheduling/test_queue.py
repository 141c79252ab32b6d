"""A run whose queue admits it, evicts it in the middle of its training, and admits it again."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.chaos.scheduling.conftest import FLAVOR
from tests.cluster.lab import Lab, RunReader
from tests.cluster.manifests import short_job
from tests.cluster.waiting import until
from tests.kube import kueue
from tests.waiting import HUNG_SECONDS

NAME = "queued"
WORKLOAD = f"rljob-{NAME}"
STEPS = 40
"""More than a fast machine makes while an eviction arrives."""
COMPLETE_SECONDS = 3 * HUNG_SECONDS
QUEUED = {"provider": "Kueue", "queueName": "team"}


def workload(lab: Lab) -> dict[str, Any]:
    workload = json.loads(lab.kubectl("get", "workload", WORKLOAD, "-o", "json"))
    assert isinstance(workload, dict)
    return workload


def decide(lab: Lab, status: dict[str, Any]) -> None:
    patch = json.dumps({"status": status})
    lab.kubectl("patch", "workload", WORKLOAD, "--subresource=status", "--type=merge", "-p", patch)


@pytest.fixture
def reader(queue: Lab) -> Iterator[RunReader]:
    """A job that waits for its queue."""
    job = short_job(NAME, training__steps=STEPS, training__checkpoint__everySteps=STEPS)
    job["spec"]["scheduling"] = QUEUED
    queue.apply(job)
    until(lambda: queue.job(NAME).status.phase == "Queued", what="the job to queue")
    with contextlib.closing(RunReader(queue, str(queue.job(NAME).status.run_id))) as reader:
        yield reader
    queue.delete("rljob", NAME)


def test_an_evicted_run_gives_its_quota_back_and_goes_on(queue: Lab, reader: RunReader) -> None:
    assert queue.pods(NAME) == []
    counts = {pod_set["name"]: pod_set["count"] for pod_set in workload(queue)["spec"]["podSets"]}
    assert counts == {"trainer": 1, "sampler-main": 1}

    decide(queue, kueue.admitted(workload(queue), name=FLAVOR))
    reader.await_step(3)
    for pod in queue.pods(NAME):
        spec = queue.get("pod", pod.name)["spec"]
        assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
        assert "spot" in [toleration.get("key") for toleration in spec["tolerations"]]

    def pods_ready() -> bool:
        return kueue.condition(workload(queue), "PodsReady").get("status") == "True"

    until(pods_ready, what="PodsReady to be told")
    decide(queue, kueue.evicted(workload(queue)))
    until(lambda: not kueue.holds_quota(workload(queue)), what="the quota to be given back")
    assert queue.pods(NAME) == []
    until(lambda: queue.job(NAME).status.phase == "Queued", what="the job to queue again")
    status = queue.job(NAME).status
    assert ([attempt.result for attempt in status.attempts], status.failures) == (["Suspended"], 0)
    held = until(reader.document, what="the run")
    assert held is not None
    assert held.durable is not None
    assert held.durable.step == held.step >= 3

    decide(queue, kueue.admitted(workload(queue), name=FLAVOR))
    queue.await_condition(NAME, "Complete", seconds=COMPLETE_SECONDS)
    status = queue.job(NAME).status
    assert (status.attempt, status.failures, status.progress.step) == (2, 0, STEPS)
    assert [attempt.result for attempt in status.attempts] == ["Suspended", "Succeeded"]
    assert status.samplers.restarts == 0

    def finished() -> bool:
        return kueue.condition(workload(queue), "Finished").get("reason") == "Succeeded"

    until(finished, what="the Workload to be finished")
    with queue.stores() as stores:
        run = stores.runs.get(reader.run)
        assert run is not None
        lineage = stores.batches.lineage(run.head_batch)
    assert [batch.step for batch in lineage] == list(range(1, STEPS + 1))
