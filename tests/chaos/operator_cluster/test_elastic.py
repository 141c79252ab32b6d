"""An elastic trainer of the real training-operator has the size that fits, and grows again.

Its pods ask for an accelerator that the node says it has: first one, later two, which really train.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.chaos.operator_cluster.jobs import (
    COMPLETE_SECONDS,
    REQUESTS,
    attempts,
    await_gone,
    await_phase,
    await_trainer,
    order,
    taught_job,
)
from tests.cluster.lab import Lab
from tests.cluster.waiting import until

pytestmark = pytest.mark.timeout(2 * COMPLETE_SECONDS)
NAME = "elastic"
STEPS = 10
PLACE = "rl-test.io/place"
UNFIT = ("Ignored", "TrainerDoesNotFit")
PENDING_SECONDS = 40
PORT = 29555
"""Where the first pod waits for the second one."""


def offer(lab: Lab, places: int | None) -> None:
    """Have the node say that it has so many places; None takes the kind away."""
    node = lab.get("nodes")["items"][0]["metadata"]["name"]
    count = None if places is None else str(places)
    change = {"status": {"capacity": {PLACE: count}, "allocatable": {PLACE: count}}}
    lab.kubectl(
        "patch", "node", node, "--subresource=status", "--type=merge", "-p", json.dumps(change)
    )

    def allocatable() -> str:
        return str(lab.get("node", node)["status"]["allocatable"].get(PLACE, "0"))

    until(lambda: allocatable() == (count or "0"), what="the kubelet to agree", seen=allocatable)


@pytest.fixture(scope="module")
def uid(lab: Lab) -> Iterator[str]:
    offer(lab, 1)
    resources = {
        "requests": {**REQUESTS, PLACE: "1"},
        "limits": {"memory": "3Gi", PLACE: "1"},
    }
    lab.apply(
        taught_job(
            NAME,
            faults="1=work 2=work",
            training__steps=STEPS,
            trainer__resources=resources,
            trainer__replicas=2,
            trainer__elastic={"minReplicas": 1, "maxReplicas": 2, "rdzvPort": PORT},
            lifecycle__pendingDeadlineSeconds=PENDING_SECONDS,
        )
    )
    yield lab.job(NAME).uid
    lab.delete("rljob", NAME)
    offer(lab, None)


def sizes(lab: Lab) -> list[int]:
    return [attempt.replicas for attempt in lab.job(NAME).status.attempts]


def running(lab: Lab, attempt: int) -> int:
    pods = lab.pods(NAME)
    return sum(pod.attempt == attempt and pod.phase == "Running" for pod in pods)


def test_elastic_trainer_shrinks_to_what_fits_and_grows_again(lab: Lab, uid: str) -> None:
    await_trainer(lab, uid, 1)
    status = await_phase(lab, NAME, "Running")
    assert (attempts(status)[0], status.attempt, status.failures) == (UNFIT, 2, 0)
    assert status.last_failure is not None
    assert f"Insufficient {PLACE}" in status.last_failure.message
    assert "trainer.elastic" in status.last_failure.message
    assert (sizes(lab), running(lab, 2)) == ([1, 1], 1)
    assert (status.trainer.desired, status.trainer.ready) == (1, 1)

    offer(lab, 2)
    order(lab, NAME, "exit:1")
    until(lambda: running(lab, 3) == 2, what="two pods", seen=lambda: lab.pods(NAME))
    assert (sizes(lab), lab.job(NAME).status.trainer.desired) == ([1, 1, 2], 2)
    assert lab.get("pytorchjob", f"{NAME}-3")["spec"]["elasticPolicy"]["rdzvPort"] == PORT
    status = await_phase(lab, NAME, "Succeeded")
    assert attempts(status) == [UNFIT, ("Failed", "TrainerFailed"), ("Succeeded", "Trained")]
    assert (status.failures, status.ignored_failures) == (1, 1)
    with lab.stores() as stores:
        run = stores.runs.get(uid)
        assert run is not None
        lineage = stores.batches.lineage(run.head_batch)
    assert [batch.step for batch in lineage] == list(range(1, STEPS + 1))
    await_gone(lab, {NAME: uid})
