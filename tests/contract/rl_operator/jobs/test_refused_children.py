"""A job one of whose objects cannot be made can be stopped, on a real API server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from rl_contracts.documents.run import Outcome
from rl_operator.apply.requeue import UNSETTLED_INTERVALS
from rl_operator.kube import kinds
from rl_operator.kube.kinds import Key
from tests.contract.rl_operator.jobs.silent_webhook import silent_webhook
from tests.contract.rl_operator.jobs.test_queue import (
    NAME,
    PODS,
    QUEUED,
    admitted_and_at_work,
    decide,
    workload,
)
from tests.contract.rl_operator.jobs.test_suspend import (
    at_work,
    end_pod,
    make_unreadable,
    refuse,
    suspend,
)
from tests.contract.rl_operator.world import World
from tests.examples import first
from tests.kube import kueue
from tests.waiting import until

EDITED = {"autoscaling": {"minReplicas": 2}, "maxConcurrentGroups": 3}
"""A template of samplers that asks for another ConfigMap."""
REFUSED = "The API server refused to create ConfigMap job-spec-"


def try_out(world: World) -> str:
    """What the API server says to another ConfigMap; nothing is changed."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tried"}}
    create = ("create", "-n", world.namespace, "--dry-run=server", "-f", "-")
    return world.apiserver.kubectl(*create, stdin=json.dumps(body), check=False).stderr


@contextmanager
def full_quota(world: World) -> Iterator[None]:
    """A quota that allows no further ConfigMap."""
    used = str(len(world.cluster.select(kinds.CONFIG_MAP, world.namespace, labels="")))
    hard = {"count/configmaps": used}
    world.apply("v1", "ResourceQuota", "full", spec={"hard": hard})
    status = json.dumps({"status": {"hard": hard, "used": hard}})
    patch = ("patch", "resourcequota", "full", "--subresource=status", "--type=merge", "-p", status)
    world.apiserver.kubectl("-n", world.namespace, *patch)
    until(lambda: "exceeded quota" in try_out(world), what="the quota to be enforced")
    yield


def webhook_away(world: World) -> AbstractContextManager[Any]:
    """A webhook for new ConfigMaps that does not answer."""
    tried: Callable[[], str] = lambda: try_out(world)  # noqa: E731 - one line tells it
    return silent_webhook(world, kinds.CONFIG_MAP, ["CREATE"], try_out=tried)


def look(world: World, job: Key) -> dict[str, Any]:
    """The job's status after some reconciles: while objects are tried again it is never at rest."""
    for _ in range(5):
        world.reconcile(job)
    return world.status(job)


def edit(world: World, **sections: Any) -> Key:
    return world.make_job(samplers=[{"name": "main", "template": EDITED}], **sections)


@pytest.mark.parametrize(
    ("hindrance", "message"),
    first(1, [(full_quota, REFUSED), (webhook_away, "cannot be written for now")]),
    ids=["a quota is full", "a webhook is away"],
)
def test_a_job_can_be_suspended(
    world: World, hindrance: Callable[[World], AbstractContextManager[Any]], message: str
) -> None:
    job = at_work(world)
    world.settle(job)
    with hindrance(world):
        edit(world, lifecycle={"suspendGraceSeconds": 45})
        look(world, job)
        assert message in world.condition(job, "Ready")["message"]
        suspend(world, job, suspended=True)
        status = look(world, job)
        assert world.objects(kinds.PYTORCH_JOB) == []
        assert status["phase"] == "Suspending"
        ready = world.condition(job, "Ready")["message"]
        assert ready.startswith("Waiting for job-1-worker-0, job-main-x-1, job-main-x-2")
        assert message in ready
        for pod in ("job-1-worker-0", "job-main-x-1", "job-main-x-2"):
            end_pod(world, pod)
        look(world, job)
        assert world.condition_now(job, "Suspended")


def test_a_queued_job_obeys_its_eviction_and_gives_its_quota_back(queue: World) -> None:
    job = admitted_and_at_work(queue)
    with full_quota(queue):
        edit(queue, scheduling=QUEUED)
        look(queue, job)
        assert REFUSED in queue.condition(job, "Stalled")["message"]
        decide(queue, kueue.evicted(workload(queue)))
        look(queue, job)
        assert queue.objects(kinds.PYTORCH_JOB) == []
        (deployment,) = queue.objects(kinds.DEPLOYMENT)
        assert deployment["spec"]["replicas"] == 0
        for pod in ("job-1-worker-0", *PODS):
            assert kueue.holds_quota(workload(queue))
            end_pod(queue, pod)
            look(queue, job)
        assert not kueue.holds_quota(workload(queue))


@pytest.mark.soak
def test_a_suspended_job_leaves_its_queue(queue: World) -> None:
    job = admitted_and_at_work(queue)
    with full_quota(queue):
        edit(queue, scheduling=QUEUED)
        look(queue, job)
        suspend(queue, job, suspended=True)
        look(queue, job)
        for pod in ("job-1-worker-0", *PODS):
            end_pod(queue, pod)
        look(queue, job)
        assert queue.condition_now(job, "Suspended")
        assert queue.cluster.get(kinds.WORKLOAD, queue.namespace, NAME) is None


@pytest.mark.soak
@pytest.mark.parametrize("hindrance", [full_quota, webhook_away])
def test_a_finished_job_tries_again_and_expires(
    world: World, hindrance: Callable[[World], AbstractContextManager[Any]]
) -> None:
    job = at_work(world)
    world.make_job(lifecycle={"cleanupPolicy": "None"})
    outcome = Outcome(kind="Succeeded", reason="Trained", message="All steps.")
    world.write_run(str(world.status(job)["runId"]), step=60, steps=60, outcome=outcome)
    world.end_trainer("job-1", "Succeeded", exit_code=0)
    assert world.settle(job)["phase"] == "Succeeded"
    assert world.operator is not None
    world.apiserver.kubectl("-n", world.namespace, "delete", "configmap", "--all")
    with hindrance(world):
        assert world.operator.jobs.reconcile(job) == UNSETTLED_INTERVALS
        world.make_job(lifecycle={"cleanupPolicy": "None", "ttlSecondsAfterFinished": 0})
        world.operator.jobs.reconcile(job)
    assert world.cluster.get(kinds.RLJOB, world.namespace, job.name) is None


@pytest.mark.soak
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (refuse, "The operator sets this variable itself."),
        (make_unreadable, "samplerpools/job-main cannot be written for now"),
    ],
)
def test_a_job_with_an_unsupported_spec_obeys_its_eviction_and_is_reported(
    queue: World,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[World, Key, pytest.MonkeyPatch], str],
    message: str,
) -> None:
    """The webhook for changes of pools does not answer, so that they cannot be held back."""
    job = admitted_and_at_work(queue)
    spoil(queue, job, monkeypatch)
    queue.settle(job)
    label = ("label", "samplerpool", "job-main", "tried=yes", "--dry-run=server")
    tried: Callable[[], str] = lambda: (  # noqa: E731 - one line tells it
        queue.apiserver.kubectl("-n", queue.namespace, *label, check=False).stderr
    )
    with silent_webhook(queue, kinds.SAMPLER_POOL, ["UPDATE"], try_out=tried):
        decide(queue, kueue.evicted(workload(queue)))
        assert queue.operator is not None
        for _ in range(3):
            queue.operator.jobs.reconcile(job)
        assert queue.objects(kinds.PYTORCH_JOB) == []
        assert queue.condition_now(job, "Evicted")
        assert message in queue.condition(job, "Ready")["message"]
