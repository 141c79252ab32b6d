"""Jobs in a queue, on a real API server with Kueue's own schemas; an admitter of ours decides."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rl_contracts.documents.run import Outcome
from rl_operator.kube import kinds
from rl_operator.kube.kinds import Key
from rl_operator.validation.dry_run import DryRun
from tests.contract.rl_operator.jobs.test_suspend import end_pod, refuse, suspend
from tests.contract.rl_operator.world import World
from tests.kube import kueue

QUEUED = {"provider": "Kueue", "queueName": "team"}
NAME = "rljob-job"
POOL = "job-main"
PODS = ("job-main-x-1", "job-main-x-2")


def workload(world: World) -> dict[str, Any]:
    workload = world.cluster.get(kinds.WORKLOAD, world.namespace, NAME)
    assert workload is not None
    return workload


def decide(world: World, status: dict[str, Any]) -> None:
    """The queue's word."""
    world.set_status("workload", NAME, status)


def pod_of(manifest: dict[str, Any]) -> dict[str, Any]:
    """The pod spec of a Deployment or a PyTorchJob."""
    spec = manifest["spec"]
    template = spec.get("template") or spec["pytorchReplicaSpecs"]["Worker"]["template"]
    pod_spec: dict[str, Any] = template["spec"]
    return pod_spec


def begun(world: World, job: Key, attempt: int) -> dict[str, Any]:
    """The trainer of an attempt, once its samplers are there."""
    world.start_samplers(str(world.status(job)["runId"]))
    world.settle(job)
    pytorch_job = world.cluster.get(kinds.PYTORCH_JOB, world.namespace, f"job-{attempt}")
    assert pytorch_job is not None
    world.start_pod(f"job-{attempt}-worker-0", of=pytorch_job)
    world.write_run(str(world.status(job)["runId"]), step=3, steps=60)
    world.settle(job)
    return pytorch_job


@pytest.mark.soak
def test_samplers_beyond_the_minimum_may_bypass_the_queue(queue: World) -> None:
    job = queue.make_job(scheduling=QUEUED | {"samplerQuota": "MinReplicas"})
    queue.settle(job)
    decide(queue, kueue.admitted(workload(queue)))
    queue.settle(job)
    queue.apiserver.kubectl("-n", queue.namespace, "scale", f"spool/{POOL}", "--replicas=5")
    queue.settle(job)
    (deployment,) = queue.objects(kinds.DEPLOYMENT)
    assert deployment["spec"]["replicas"] == 5
    assert pod_of(deployment)["nodeSelector"] == {"pool": "spot"}
    counts = {pod_set["name"]: pod_set["count"] for pod_set in workload(queue)["spec"]["podSets"]}
    assert counts["sampler-main"] == 2


def test_job_waits_for_its_queue_is_evicted_and_resumes(queue: World) -> None:
    job = queue.make_job(
        scheduling=QUEUED, trainer={"resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}
    )
    status = queue.settle(job)
    assert status["phase"] == "Queued"
    assert "Check that LocalQueue team exists" in queue.condition(job, "Reconciling")["message"]
    assert not queue.objects(kinds.SAMPLER_POOL)
    asked = workload(queue)["spec"]
    assert asked["queueName"] == "team"
    assert {pod_set["name"]: pod_set["count"] for pod_set in asked["podSets"]} == {
        "trainer": 1,
        "sampler-main": 2,
    }
    (container,) = asked["podSets"][0]["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "2", "memory": "1Gi"}

    decide(queue, kueue.pending(workload(queue), "insufficient quota for cpu in flavor spot"))
    queue.settle(job)
    condition = queue.condition(job, "QuotaReserved")
    assert (condition["status"], condition["message"]) == (
        "False",
        "insufficient quota for cpu in flavor spot",
    )
    assert queue.condition(job, "Ready")["message"] == condition["message"]

    decide(queue, kueue.admitted(workload(queue)))
    queue.settle(job)
    assert queue.condition_now(job, "Admitted")
    (deployment,) = queue.objects(kinds.DEPLOYMENT)
    assert deployment["spec"]["replicas"] == 2
    for manifest in (deployment, begun(queue, job, 1)):
        assert pod_of(manifest)["nodeSelector"] == {"pool": "spot"}
        assert pod_of(manifest)["tolerations"][0]["key"] == "spot"
    assert kueue.condition(workload(queue), "PodsReady")["status"] == "True"

    decide(queue, kueue.evicted(workload(queue)))
    status = queue.settle(job)
    assert status["phase"] == "Suspending"
    assert (
        "The queue stops the job (Preempted): Preempted to make room"
        in queue.condition(job, "Ready")["message"]
    )
    assert queue.objects(kinds.PYTORCH_JOB) == []
    for pod in ("job-1-worker-0", *PODS):
        assert kueue.holds_quota(workload(queue))
        end_pod(queue, pod)
        status = queue.settle(job)
    assert (status["phase"], status["attempts"][0]["result"]) == ("Queued", "Suspended")
    assert not kueue.holds_quota(workload(queue))
    assert "admission" not in workload(queue)["status"]
    metadata = workload(queue)["metadata"]
    assert status["workloadRef"] == {"name": metadata["name"], "uid": metadata["uid"]}
    assert (status["preemptions"], status["resources"]["cpu"]) == (1, "0")
    assert kueue.condition(workload(queue), "Requeued")["status"] == "True"

    decide(queue, kueue.admitted(workload(queue), name="owned"))
    queue.settle(job)
    assert queue.objects(kinds.PYTORCH_JOB) == []  # samplers come first, as at the first start
    assert pod_of(begun(queue, job, 2))["nodeSelector"] == {"pool": "owned"}
    (deployment,) = queue.objects(kinds.DEPLOYMENT)
    assert pod_of(deployment)["nodeSelector"] == {"pool": "owned"}
    assert queue.status(job)["failures"] == 0

    outcome = Outcome(kind="Succeeded", reason="Trained", message="All steps.")
    queue.write_run(str(queue.status(job)["runId"]), step=60, steps=60, outcome=outcome)
    queue.end_trainer("job-2", "Succeeded", exit_code=0)
    queue.settle(job)
    assert kueue.holds_quota(workload(queue))  # the samplers are still there
    for pod in PODS:
        end_pod(queue, pod)
    assert queue.settle(job)["phase"] == "Succeeded"
    finished = kueue.condition(workload(queue), "Finished")
    assert (finished["status"], finished["reason"]) == ("True", "Succeeded")
    reasons = {event["reason"] for event in queue.objects(kinds.EVENT)}
    assert {"Admitted", "Evicted", "Completed"} <= reasons


@pytest.mark.soak
def test_a_suspended_job_leaves_its_queue(queue: World) -> None:
    job = queue.make_job(scheduling=QUEUED)
    queue.settle(job)
    first = workload(queue)["metadata"]["uid"]
    decide(queue, kueue.admitted(workload(queue)))
    queue.settle(job)
    for pod in PODS:
        (deployment,) = queue.objects(kinds.DEPLOYMENT)
        queue.start_pod(pod, of=deployment)
    suspend(queue, job, suspended=True)
    queue.settle(job)
    assert kueue.holds_quota(workload(queue))
    for pod in PODS:
        end_pod(queue, pod)
    assert queue.settle(job)["phase"] == "Suspended"
    assert queue.cluster.get(kinds.WORKLOAD, queue.namespace, NAME) is None
    suspend(queue, job, suspended=False)
    assert queue.settle(job)["phase"] == "Queued"
    assert workload(queue)["metadata"]["uid"] != first
    (deployment,) = queue.objects(kinds.DEPLOYMENT)
    assert deployment["spec"]["replicas"] == 0


def test_pool_does_not_grow_beyond_its_admitted_size(queue: World) -> None:
    job = queue.make_job(scheduling=QUEUED)
    queue.settle(job)
    decide(queue, kueue.admitted(workload(queue)))
    queue.settle(job)
    queue.apiserver.kubectl("-n", queue.namespace, "scale", "spool/job-main", "--replicas=5")
    status = queue.settle(job)
    (deployment,) = queue.objects(kinds.DEPLOYMENT)
    assert (deployment["spec"]["replicas"], status["samplers"]["desired"]) == (2, 2)
    (pool,) = queue.objects(kinds.SAMPLER_POOL)
    scaling_limited = {condition["type"]: condition for condition in pool["status"]["conditions"]}[
        "ScalingLimited"
    ]
    assert scaling_limited["reason"] == "QueueAdmitsFewer"
    assert scaling_limited["message"].startswith(
        "spec.replicas = 5: The job's queue has admitted 2 pods."
    )


def test_a_priority_comes_from_its_class(queue: World) -> None:
    scheduling = {**QUEUED, "workloadPriorityClassName": "urgent"}
    job = queue.make_job(scheduling=scheduling)
    assert queue.settle(job)["phase"] == "Stalled"
    message = queue.condition(job, "Stalled")["message"]
    assert message.startswith("spec.scheduling.workloadPriorityClassName = 'urgent':")
    urgent = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": "urgent"},
        "value": 700,
    }
    queue.apiserver.kubectl("apply", "-f", "-", stdin=json.dumps(urgent))
    assert queue.settle(job)["phase"] == "Queued"
    spec = workload(queue)["spec"]
    assert (spec["priority"], spec["priorityClassRef"]["kind"]) == (700, "WorkloadPriorityClass")


def test_growing_beyond_the_admission_requests_a_new_one(queue: World) -> None:
    """The samplers of a running job are made larger: it stops, and queues for what it needs now."""
    job = queue.make_job(scheduling=QUEUED)
    queue.settle(job)
    first = workload(queue)["metadata"]["uid"]
    decide(queue, kueue.admitted(workload(queue)))
    queue.settle(job)
    larger = {"resources": {"requests": {"cpu": "4"}}, "autoscaling": {"minReplicas": 2}}
    samplers = [{"name": "main", "template": larger}]
    patch = json.dumps({"spec": {"samplers": samplers}})
    queue.apiserver.kubectl(
        "-n", queue.namespace, "patch", "rljob", "job", "--type=merge", "-p", patch
    )
    assert queue.settle(job)["phase"] == "Queued"
    assert workload(queue)["metadata"]["uid"] != first
    (deployment,) = queue.objects(kinds.DEPLOYMENT)
    assert deployment["spec"]["replicas"] == 0


def test_reconcile_that_creates_a_pool_keeps_the_job_admitted(queue: World) -> None:
    """The status of a reconcile that created objects also needs the job's Workload."""
    queue.start_operator(cache_seconds=3600.0)
    job = queue.make_job(scheduling=QUEUED)
    queue.settle(job)
    decide(queue, kueue.admitted(workload(queue)))
    assert queue.operator is not None
    queue.operator.jobs.reader.distrust(job)  # as the watch of Workloads would cause
    queue.settle(job)
    (pool,) = queue.objects(kinds.SAMPLER_POOL)
    queue.operators.delete(
        kinds.SAMPLER_POOL, queue.namespace, "job-main", uid=pool["metadata"]["uid"]
    )
    queue.operator.jobs.reconcile(job)
    assert len(queue.objects(kinds.SAMPLER_POOL)) == 1
    assert queue.condition_now(job, "Admitted")


def admitted_and_at_work(world: World) -> Key:
    job = world.make_job(scheduling=QUEUED)
    world.settle(job)
    decide(world, kueue.admitted(workload(world)))
    world.settle(job)
    begun(world, job, 1)
    return job


def test_an_edit_that_the_api_server_refuses_takes_nothing_from_a_job_at_work(
    queue: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = admitted_and_at_work(queue)
    before = workload(queue)["metadata"]["uid"]
    misspelt = {"spec": {"containers": [{"name": "agent", "stdinn": True}]}}
    template = {"autoscaling": {"minReplicas": 3}, "podTemplate": misspelt}
    queue.make_job(scheduling=QUEUED, samplers=[{"name": "main", "template": template}])
    queue.settle(job)
    assert queue.condition(job, "Stalled")["reason"] == "PodRefused"
    assert len(queue.objects(kinds.PYTORCH_JOB)) == 1
    assert workload(queue)["metadata"]["uid"] == before

    answers = iter([queue.condition(job, "Stalled")])  # the pods are accepted from then on
    monkeypatch.setattr(DryRun, "refusal", lambda *_, **__: next(answers, None))
    assert queue.operator is not None
    queue.operator.jobs.reconcile(job)
    (pool,) = queue.objects(kinds.SAMPLER_POOL)
    assert pool["spec"]["admitted"] == 2


@pytest.mark.soak
def test_eviction_is_obeyed_even_if_the_spec_is_invalid(
    queue: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = admitted_and_at_work(queue)
    refuse(queue, job, monkeypatch)
    queue.settle(job)
    assert queue.condition(job, "Stalled")["reason"] == "VariableReserved"
    assert kueue.holds_quota(workload(queue)), "what runs goes on"

    decide(queue, kueue.evicted(workload(queue)))
    queue.settle(job)
    assert queue.objects(kinds.PYTORCH_JOB) == []
    (deployment,) = queue.objects(kinds.DEPLOYMENT)
    assert deployment["spec"]["replicas"] == 0
    for pod in ("job-1-worker-0", *PODS):
        assert kueue.holds_quota(workload(queue))
        end_pod(queue, pod)
        queue.settle(job)
    # What cannot run does not wait for quota, either.
    assert queue.cluster.get(kinds.WORKLOAD, queue.namespace, NAME) is None
    assert queue.condition(job, "Stalled")["reason"] == "VariableReserved"

    queue.make_job(scheduling=QUEUED)  # as it was at first
    assert queue.settle(job)["phase"] == "Queued"
    decide(queue, kueue.admitted(workload(queue)))
    queue.settle(job)
    begun(queue, job, 2)
    assert queue.status(job)["failures"] == 0


@pytest.mark.soak
def test_deleted_job_keeps_its_quota_until_its_pods_terminate(queue: World) -> None:
    job = admitted_and_at_work(queue)
    queue.apiserver.kubectl("-n", job.namespace, "delete", "rljob", job.name, "--wait=false")
    assert queue.operator is not None
    for pod in ("job-1-worker-0", *PODS):
        queue.operator.jobs.reconcile(job)
        assert queue.condition(job, "Reconciling")["reason"] == "Deleting"
        end_pod(queue, pod)
    assert queue.objects(kinds.PYTORCH_JOB) == []
    # The garbage collector takes the Workload with the job, and not before it.
    (owner,) = workload(queue)["metadata"]["ownerReferences"]
    assert not owner["blockOwnerDeletion"]
    assert kueue.holds_quota(workload(queue))
    queue.operator.jobs.reconcile(job)
    assert queue.cluster.get(kinds.RLJOB, job.namespace, job.name) is None


def test_a_job_whose_inputs_are_refused_holds_no_quota(queue: World) -> None:
    job = queue.make_job(scheduling=QUEUED)
    queue.settle(job)
    decide(queue, kueue.admitted(workload(queue)))
    queue.stores.objects.put(f"{queue.settings.s3_prefix}train.jsonl", b"this is no JSON\n")
    queue.start_operator()
    assert queue.settle(job)["phase"] == "Stalled"
    assert queue.cluster.get(kinds.WORKLOAD, queue.namespace, NAME) is None
    queue.upload_inputs()
    queue.start_operator()
    assert queue.settle(job)["phase"] == "Queued"
    assert not kueue.holds_quota(workload(queue))


def test_a_job_that_holds_no_quota_is_deleted_at_once(queue: World) -> None:
    job = queue.make_job(scheduling=QUEUED)
    queue.settle(job)
    queue.apiserver.kubectl("-n", job.namespace, "delete", "rljob", job.name, "--wait=false")
    assert queue.cluster.get(kinds.RLJOB, job.namespace, job.name) is None
