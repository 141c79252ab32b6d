"""Suspension on a real API server: pods are really gone before it is said, and no attempt fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import create_model

from rl_contracts.spec.resources import RLJobSpec
from rl_operator.kube import kinds
from rl_operator.kube.kinds import Key
from rl_operator.kube.names import SPEC_KEY, SPEC_VOLUME
from rl_operator.state import observe
from tests.contract.rl_operator.world import World
from tests.waiting import until

ASSIGNED = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")
"""Metadata that the API server gives."""


def suspend(world: World, job: Key, *, suspended: bool) -> None:
    patch = f'{{"spec": {{"suspend": {str(suspended).lower()}}}}}'
    world.apiserver.kubectl(
        "-n", job.namespace, "patch", "rljob", job.name, "--type=merge", "-p", patch
    )


def end_pod(world: World, name: str) -> None:
    """What the garbage collector and the kubelet do."""
    world.apiserver.kubectl(
        "-n", world.namespace, "delete", "pod", name, "--force", "--grace-period=0"
    )


def at_work(world: World) -> Key:
    """A job whose first attempt runs."""
    world.make_secret()
    world.upload_inputs()
    job = world.make_job(lifecycle={"suspendGraceSeconds": 45})
    run = str(world.settle(job)["runId"])
    world.start_samplers(run)
    world.settle(job)
    trainer = world.cluster.get(kinds.PYTORCH_JOB, world.namespace, "job-1")
    assert trainer is not None
    template = trainer["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    assert template["spec"]["terminationGracePeriodSeconds"] == 45
    world.start_pod("job-1-worker-0", of=trainer)
    world.write_run(run, step=3, steps=60)
    return job


def test_a_job_is_stopped_for_good_once_its_pods_are_gone(world: World) -> None:
    job = at_work(world)
    patch = ("patch", "rljob", job.name, "--type=merge", "-p", '{"spec": {"stop": true}}')
    world.apiserver.kubectl("-n", job.namespace, *patch)
    status = world.settle(job)
    assert world.objects(kinds.PYTORCH_JOB) == []
    assert (status["phase"], "completionTime" in status) == ("Suspending", False)
    for name in ("job-1-worker-0", "job-main-x-1"):
        end_pod(world, name)
        assert world.settle(job)["phase"] == "Suspending"
    end_pod(world, "job-main-x-2")
    status = world.settle(job)
    assert (status["phase"], status["failures"], status["attempt"]) == ("Stopped", 0, 1)
    assert "completionTime" in status
    assert "lastFailure" not in status
    final = world.condition(job, "Failed")
    assert (final["status"], final["reason"]) == ("True", "Stopped")
    assert "at step 3 of 60" in final["message"]
    assert world.condition_now(job, "Ready")
    assert not world.condition_now(job, "Complete")
    assert not world.condition_now(job, "Suspended")
    assert world.objects(kinds.SAMPLER_POOL) == []
    suspend(world, job, suspended=False)
    assert world.settle(job)["phase"] == "Stopped"


def test_a_suspended_job_and_one_that_never_began_can_be_stopped(world: World) -> None:
    world.make_secret()
    world.upload_inputs()
    job = world.make_job(suspend=True)
    assert world.settle(job)["phase"] == "Suspended"
    patch = ("patch", "rljob", job.name, "--type=merge", "-p", '{"spec": {"stop": true}}')
    world.apiserver.kubectl("-n", job.namespace, *patch)
    assert world.settle(job)["phase"] == "Stopped"
    assert "before its first attempt" in world.condition(job, "Failed")["message"]


@pytest.mark.soak
def test_a_stopped_job_tells_the_step_that_its_trainer_reached_while_it_ended(
    world: World,
) -> None:
    job = at_work(world)
    world.start_operator(fresh_readings=False)  # the run is polled only now and then
    assert world.settle(job)["progress"]["step"] == 3
    patch = ("patch", "rljob", job.name, "--type=merge", "-p", '{"spec": {"stop": true}}')
    world.apiserver.kubectl("-n", job.namespace, *patch)
    world.settle(job)
    world.write_run(str(world.status(job)["runId"]), step=5, steps=60)
    for name in ("job-1-worker-0", "job-main-x-1", "job-main-x-2"):
        end_pod(world, name)
    assert world.settle(job)["progress"]["step"] == 5
    assert "at step 5 of 60" in world.condition(job, "Failed")["message"]


def test_job_is_suspended_and_resumed(world: World) -> None:
    job = at_work(world)
    suspend(world, job, suspended=True)
    status = world.settle(job)
    assert world.objects(kinds.PYTORCH_JOB) == []
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    assert deployment["spec"]["replicas"] == 0
    (pool,) = world.objects(kinds.SAMPLER_POOL)
    assert pool["spec"]["replicas"] == 2  # what /scale says stands for the resumption
    assert (status["phase"], status["operation"]["step"]) == ("Suspending", "StoppingTrainer")
    assert not world.condition_now(job, "Suspended")

    end_pod(world, "job-1-worker-0")
    status = world.settle(job)
    assert status["attempts"][0]["result"] == "Suspended"
    assert status["operation"]["step"] == "StoppingSamplers"
    assert not world.condition_now(job, "Suspended")

    end_pod(world, "job-main-x-1")
    world.settle(job)
    assert not world.condition_now(job, "Suspended")
    end_pod(world, "job-main-x-2")
    status = world.settle(job)
    assert world.condition_now(job, "Suspended")
    assert world.condition_now(job, "Ready")
    assert (status["phase"], status["progress"]["step"]) == ("Suspended", 3)
    assert "operation" not in status

    suspend(world, job, suspended=False)
    status = world.settle(job)
    assert (status["attempt"], world.objects(kinds.PYTORCH_JOB)) == (1, [])
    assert (status["operation"]["kind"], status["operation"]["step"]) == (
        "Start",
        "WaitingForSamplers",
    )
    assert "main has 0 of 2" in world.condition(job, "Reconciling")["message"]
    world.start_samplers(str(status["runId"]))
    status = world.settle(job)
    assert (status["attempt"], status["failures"]) == (2, 0)
    assert [
        pytorch_job["metadata"]["name"] for pytorch_job in world.objects(kinds.PYTORCH_JOB)
    ] == ["job-2"]
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    assert deployment["spec"]["replicas"] == 2
    assert world.condition(job, "Suspended")["status"] == "False"
    reasons = {event["reason"] for event in world.objects(kinds.EVENT)}
    assert {"Suspended", "Resumed"} <= reasons


@pytest.mark.soak
def test_a_trainer_that_a_paused_operator_creates_late_is_deleted(world: World) -> None:
    """It was paused after its last check of its Lease and before its request arrived.

    Meanwhile the attempt was suspended and the next one began. No precondition could refuse the
    creation: the object was deleted. Its pods would be refused by the run document.
    """
    job = at_work(world)
    late = world.cluster.get(kinds.PYTORCH_JOB, world.namespace, "job-1")
    assert late is not None
    suspend(world, job, suspended=True)
    world.settle(job)
    for pod in ("job-1-worker-0", "job-main-x-1", "job-main-x-2"):
        end_pod(world, pod)
        world.settle(job)
    suspend(world, job, suspended=False)
    world.start_samplers(str(world.settle(job)["runId"]))
    assert world.settle(job)["attempt"] == 2
    second = world.cluster.get(kinds.PYTORCH_JOB, world.namespace, "job-2")

    kept = {key: late["metadata"][key] for key in late["metadata"] if key not in ASSIGNED}
    fields = {key: late[key] for key in ("apiVersion", "kind", "spec")}
    world.cluster.create(kinds.PYTORCH_JOB, {**fields, "metadata": kept})
    status = world.settle(job)
    assert (status["attempt"], status["failures"]) == (2, 0)
    assert world.objects(kinds.PYTORCH_JOB) == [second]


def test_job_created_suspended_creates_its_pools_when_resumed(world: World) -> None:
    world.make_secret()
    world.upload_inputs()
    job = world.make_job(suspend=True)
    assert world.settle(job)["phase"] == "Suspended"
    assert world.objects(kinds.SAMPLER_POOL) == []
    suspend(world, job, suspended=False)
    world.settle(job)
    assert len(world.objects(kinds.SAMPLER_POOL)) == 1


def test_inputs_of_a_job_that_is_created_suspended_are_checked(world: World) -> None:
    world.make_secret()
    job = world.make_job(suspend=True)
    status = world.settle(job)
    assert status["phase"] == "Stalled"
    assert "spec.model" in world.condition(job, "Stalled")["message"]
    assert world.condition_now(job, "Suspended")
    assert world.objects(kinds.SAMPLER_POOL) == []

    world.upload_inputs()
    until(
        lambda: world.settle(job)["phase"] == "Suspended",
        what="the job to be valid",
        seen=lambda: world.status(job),
    )
    assert world.condition_now(job, "Ready")
    assert world.objects(kinds.SAMPLER_POOL) == []


def test_the_trainer_section_may_change_while_suspended(world: World) -> None:
    job = at_work(world)
    patch = '{"spec": {"trainer": {"resources": {"limits": {"memory": "9Gi"}}}}}'
    arguments = ("-n", job.namespace, "patch", "rljob", job.name, "--type=merge", "-p", patch)
    refused = world.apiserver.kubectl(*arguments, check=False)
    assert "spec.trainer cannot change while the trainer runs" in refused.stderr
    suspend(world, job, suspended=True)
    world.apiserver.kubectl(*arguments)


def patched(world: World, job: Key, spec: dict[str, Any]) -> None:
    patch = json.dumps({"spec": spec})
    world.apiserver.kubectl(
        "-n", job.namespace, "patch", "rljob", job.name, "--type=merge", "-p", patch
    )


def read_by(world: World, attempt: int) -> RLJobSpec:
    """The spec that the trainer's pods of an attempt mount."""
    trainer = world.cluster.get(kinds.PYTORCH_JOB, world.namespace, f"job-{attempt}")
    assert trainer is not None
    pod = trainer["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    (name,) = (
        volume["configMap"]["name"] for volume in pod["volumes"] if volume["name"] == SPEC_VOLUME
    )
    config = world.cluster.get(kinds.CONFIG_MAP, world.namespace, name)
    assert config is not None
    assert config["metadata"]["ownerReferences"][0]["name"] == "job"
    return RLJobSpec.model_validate_json(config["data"][SPEC_KEY])


@pytest.mark.soak
def test_edits_of_trainer_and_lifecycle_reach_the_next_attempt_and_no_earlier_one(
    world: World,
) -> None:
    job = at_work(world)
    (first,), (deployment,) = world.objects(kinds.PYTORCH_JOB), world.objects(kinds.DEPLOYMENT)
    began_with = read_by(world, 1)
    retention = {"checkpoints": {"maxBytes": 10**9}}
    patched(world, job, {"lifecycle": {"retention": retention, "pendingDeadlineSeconds": 99}})
    world.settle(job)
    assert world.objects(kinds.PYTORCH_JOB) == [first], "an edit changed a running attempt"
    assert read_by(world, 1) == began_with

    suspend(world, job, suspended=True)
    world.settle(job)
    for pod in ("job-1-worker-0", "job-main-x-1", "job-main-x-2"):
        end_pod(world, pod)
    world.settle(job)
    patched(world, job, {"trainer": {"parallelism": {"fsdp": 1}}})
    suspend(world, job, suspended=False)
    world.start_samplers(str(world.settle(job)["runId"]))
    assert world.settle(job)["attempt"] == 2
    now = read_by(world, 2)
    assert now.trainer.parallelism != began_with.trainer.parallelism
    assert now.trainer.parallelism.fsdp == 1
    assert now.lifecycle.retention.checkpoints.max_bytes == 10**9
    (after,) = world.objects(kinds.DEPLOYMENT)
    assert after["spec"]["template"] == deployment["spec"]["template"], "sampler pods were replaced"


@pytest.mark.soak
def test_a_job_resumed_while_its_trainer_stops_goes_on_as_the_next_attempt(world: World) -> None:
    job = at_work(world)
    began_with = read_by(world, 1)
    suspend(world, job, suspended=True)
    world.settle(job)
    assert world.objects(kinds.PYTORCH_JOB) == []
    memory = {"limits": {"memory": "3Gi"}}
    patched(world, job, {"suspend": False, "trainer": {"replicas": 2, "resources": memory}})
    status = world.settle(job)
    assert world.objects(kinds.PYTORCH_JOB) == [], "the first attempt has a pod of the earlier spec"
    assert (status["attempt"], status["operation"]["step"]) == (1, "StoppingTrainer")
    waiting = "Waiting for job-1-worker-0 to terminate."
    assert world.condition(job, "Reconciling")["message"] == waiting

    end_pod(world, "job-1-worker-0")
    status = world.settle(job)
    assert [(each["result"], each["replicas"]) for each in status["attempts"]] == [
        ("Suspended", 1),
        ("Active", 2),
    ]
    (trainer,) = world.objects(kinds.PYTORCH_JOB)
    assert trainer["metadata"]["name"] == "job-2"
    assert trainer["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 2
    assert (began_with.trainer.replicas, read_by(world, 2).trainer.replicas) == (1, 2)


def refuse(world: World, job: Key, _monkeypatch: pytest.MonkeyPatch) -> str:
    """An edit that the API server accepts and the operator refuses."""
    engine = {"env": [{"name": "HOME", "value": "/"}]}
    groups = [{"name": "main", "template": {"engine": engine, "autoscaling": {"minReplicas": 2}}}]
    patch = json.dumps({"spec": {"samplers": groups}})
    world.apiserver.kubectl(
        "-n", job.namespace, "patch", "rljob", job.name, "--type=merge", "-p", patch
    )
    return "VariableReserved"


def make_unreadable(_world: World, _job: Key, monkeypatch: pytest.MonkeyPatch) -> str:
    """The operator's next version has other models."""
    monkeypatch.setattr(
        observe, "RLJobSpec", create_model("Strict", __base__=RLJobSpec, novel=(int, ...))
    )
    return "InvalidSpec"


@pytest.mark.soak
@pytest.mark.parametrize("spoil", [refuse, make_unreadable])
def test_job_with_an_unsupported_spec_can_be_suspended(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[World, Key, pytest.MonkeyPatch], str],
) -> None:
    job = at_work(world)
    with monkeypatch.context() as edited:
        reason = spoil(world, job, edited)
        world.settle(job)
        assert world.condition(job, "Stalled")["reason"] == reason
        assert [
            pytorch_job["metadata"]["name"] for pytorch_job in world.objects(kinds.PYTORCH_JOB)
        ] == ["job-1"]
        (deployment,) = world.objects(kinds.DEPLOYMENT)
        assert deployment["spec"]["replicas"] == 2, "what runs goes on"

        suspend(world, job, suspended=True)
        status = world.settle(job)
        assert world.objects(kinds.PYTORCH_JOB) == []
        (deployment,) = world.objects(kinds.DEPLOYMENT)
        assert deployment["spec"]["replicas"] == 0
        assert status["operation"]["kind"] == "Suspend"
        assert not world.condition_now(job, "Suspended")
        for pod in ("job-1-worker-0", "job-main-x-1", "job-main-x-2"):
            end_pod(world, pod)
        status = world.settle(job)
        assert world.condition_now(job, "Suspended")
        assert [attempt["result"] for attempt in status["attempts"]] == ["Suspended"]

    world.make_job(lifecycle={"suspendGraceSeconds": 45})  # as it was at first
    suspend(world, job, suspended=False)
    world.settle(job)
    world.start_samplers(str(status["runId"]))
    assert world.settle(job)["attempt"] == 2
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    assert deployment["spec"]["replicas"] == 2
