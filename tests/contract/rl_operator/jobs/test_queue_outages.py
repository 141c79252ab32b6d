"""Jobs in a queue while a store, or Kueue's webhook, does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from rl_contracts.documents.run import Outcome
from rl_operator.kube import kinds
from rl_operator.kube.kinds import Key
from rl_operator.kube.names import FLAVORS_ANNOTATION
from tests.contract.rl_operator.jobs.silent_webhook import silent_webhook
from tests.contract.rl_operator.jobs.test_queue import (
    NAME,
    PODS,
    QUEUED,
    admitted_and_at_work,
    decide,
    workload,
)
from tests.contract.rl_operator.jobs.test_suspend import end_pod
from tests.contract.rl_operator.world import World
from tests.kube import kueue
from tests.network.relay import Relay, relayed
from tests.waiting import until


@pytest.fixture
def way(queue: World) -> Iterator[Relay]:
    """The way from the readers to MongoDB."""
    uri = queue.settings.mongo_uri.get_secret_value()
    port = urlsplit(uri).port
    assert port is not None
    with relayed(port) as relay:
        queue.make_secret(mongoUri=uri.replace(f":{port}", f":{relay.port}"))
        yield relay


def test_a_job_keeps_its_place_in_the_queue_while_a_store_is_away(queue: World, way: Relay) -> None:
    job = queue.make_job(scheduling=QUEUED)
    queue.settle(job)
    decide(queue, kueue.pending(workload(queue), "insufficient quota"))
    queue.settle(job)
    first = workload(queue)["metadata"]["uid"]

    way.cut()
    queue.start_operator()
    assert queue.settle(job)["phase"] == "Stalled"
    assert queue.condition(job, "Stalled")["reason"] == "StateStoreUnreachable"
    assert workload(queue)["metadata"]["uid"] == first

    way.mend()
    until(lambda: queue.reconcile(job)["phase"] == "Queued", what="the store to be checked again")
    assert workload(queue)["metadata"]["uid"] == first


@pytest.mark.soak
def test_a_job_at_work_is_reported_while_kueues_webhook_does_not_answer(queue: World) -> None:
    """An earlier release has not recorded the flavors of its admission."""
    job = admitted_and_at_work(queue)
    forget = ["annotate", "workload", NAME, f"{FLAVORS_ANNOTATION}-"]
    queue.apiserver.kubectl("-n", queue.namespace, *forget)
    updates = silent_webhook(queue, kinds.WORKLOAD, ["UPDATE"], try_out=lambda: _annotated(queue))
    with updates as webhook:
        queue.start_operator()
        until(lambda: _ready(queue.reconcile(job)) == "WebhookUnavailable", what="the status")
        message = queue.condition(job, "Ready")["message"]
        assert message.startswith(f"workloads/{NAME} cannot be written for now")
        assert webhook in message
        queue.end_trainer("job-1", "Failed", exit_code=1)
        until(lambda: queue.reconcile(job)["failures"] == 1, what="the end of the attempt")
    until(lambda: _ready(queue.reconcile(job)) != "WebhookUnavailable", what="the status")
    assert FLAVORS_ANNOTATION in workload(queue)["metadata"]["annotations"]


@pytest.mark.soak
def test_a_finished_job_expires_while_kueues_webhook_does_not_answer(queue: World) -> None:
    job = admitted_and_at_work(queue)
    outcome = Outcome(kind="Succeeded", reason="Trained", message="All steps.")
    queue.write_run(str(queue.status(job)["runId"]), step=60, steps=60, outcome=outcome)
    queue.end_trainer("job-1", "Succeeded", exit_code=0)
    queue.settle(job)
    expires = {"spec": {"lifecycle": {"ttlSecondsAfterFinished": 0}}}
    with silent_webhook(queue, kinds.WORKLOAD, ["UPDATE"], try_out=lambda: _annotated(queue)):
        for pod in PODS:
            end_pod(queue, pod)
        metadata = {"name": job.name, "namespace": job.namespace}
        queue.cluster.merge(kinds.RLJOB, {"metadata": metadata, **expires})
        until(lambda: _is_deleted(queue, job), what="the deletion")
    assert kueue.condition(workload(queue), "Finished") == {}


def _annotated(world: World) -> str:
    """What the API server says to an edit of the Workload; nothing is changed."""
    edit = ["annotate", "workload", NAME, "--dry-run=server", "--overwrite", "x=y"]
    return world.apiserver.kubectl("-n", world.namespace, *edit, check=False).stderr


def _is_deleted(world: World, job: Key) -> bool:
    """Whether somebody has deleted a job, after another look at it."""
    assert world.operator is not None
    world.operator.jobs.reconcile(job)
    current = world.cluster.get(kinds.RLJOB, job.namespace, job.name)
    return current is None or "deletionTimestamp" in current["metadata"]


def _ready(status: dict[str, Any]) -> str:
    """Reason of the Ready condition."""
    reasons = (each["reason"] for each in status["conditions"] if each["type"] == "Ready")
    return str(next(reasons))
