"""What keeps a pod from starting is on the job within 30 s: the kubelet's words and the field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config

from rl_operator.kube import kinds
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.kinds import Key
from rl_operator.state.start_troubles import LATE_SECONDS
from tests.contract.rl_operator.world import World

SAMPLER = "job-main-x-1"
MOUNT = 'MountVolume.SetUp failed for volume "code" : configmap "scorers" not found'
PULL = 'Back-off pulling image "other:1": ErrImagePull: other:1: not found'
REMEDY = "spec.code.configMapRef.name = 'scorers': Create ConfigMap scorers in namespace"


def warn(world: World, kind: kinds.Kind, name: str, *, reason: str, note: str) -> None:
    """A Warning Event about an object, in the core group, as kubelets post it."""
    involved = world.cluster.get(kind, world.namespace, name)
    assert involved is not None
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "warning-", "namespace": world.namespace},
        "involvedObject": {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "namespace": world.namespace,
            "name": name,
            "uid": involved["metadata"]["uid"],
        },
        "type": "Warning",
        "reason": reason,
        "message": note,
        "lastTimestamp": "2026-11-25T00:00:00Z",
    }
    world.apiserver.kubectl("create", "-f", "-", stdin=json.dumps(event))


def block(world: World, name: str, *, reason: str = "ContainerCreating", message: str = "") -> None:
    """A pod whose container waits."""
    state = {"waiting": {"reason": reason, "message": message}}
    world.set_pod(
        name, "Pending", container={"name": "pytorch", "state": state, "image": "other:1"}
    )


@pytest.fixture
def job(world: World) -> Key:
    """A job whose pool has a Deployment."""
    world.make_secret()
    world.upload_inputs()
    code = {"configMapRef": {"name": "scorers"}}
    agent = {"kind": "ToolLoop", "tools": [{"entryPoint": "scorers:look_up"}]}
    key = world.make_job(code=code, agent=agent)
    world.settle(key)
    return key


def begin(world: World, job: Key) -> str:
    """Start the trainer; its name."""
    world.start_samplers(str(world.status(job)["runId"]))
    world.settle(job)
    (trainer,) = world.objects(kinds.PYTORCH_JOB)
    return str(trainer["metadata"]["name"])


def message_of(world: World, job: Key, kind: str) -> str:
    """The message of a condition some seconds later."""
    assert world.operator is not None
    world.operator.skew += LATE_SECONDS + 1
    world.settle(job)
    return str(world.condition(job, kind)["message"])


def test_the_charts_rights_suffice_to_read_warnings(world: World, rights: Path) -> None:
    configuration = client.Configuration()
    config.load_kube_config(str(rights), client_configuration=configuration)
    with client.ApiClient(configuration) as api:
        writes = world.writes.may_write
        operator = Cluster(api, may_write=writes, count=lambda verb, kind: None)
        assert operator.warnings(world.namespace) == ([], True)


def test_a_volume_that_cannot_be_mounted_is_on_the_job(world: World, job: Key) -> None:
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    world.start_pod(SAMPLER, of=deployment)
    block(world, SAMPLER)
    warn(world, kinds.POD, SAMPLER, reason="FailedMount", note=MOUNT)
    message = message_of(world, job, "Ready")
    assert f"Pod {SAMPLER} does not start: FailedMount: {MOUNT}. {REMEDY}" in message
    (pool,) = world.objects(kinds.SAMPLER_POOL)
    ready = next(item for item in pool["status"]["conditions"] if item["type"] == "Ready")
    assert REMEDY in ready["message"]


def test_a_trainer_that_cannot_mount_is_on_the_job(world: World, job: Key) -> None:
    trainer = begin(world, job)
    (made,) = world.objects(kinds.PYTORCH_JOB)
    pod = f"{trainer}-worker-0"
    world.start_pod(pod, of=made)
    block(world, pod)
    warn(world, kinds.POD, pod, reason="FailedMount", note=MOUNT)
    assert f"FailedMount: {MOUNT}. {REMEDY}" in message_of(world, job, "Ready")
    assert REMEDY in world.condition(job, "TrainerReady")["message"]


def test_an_image_that_cannot_be_pulled_is_on_the_job(world: World, job: Key) -> None:
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    world.start_pod(SAMPLER, of=deployment)
    block(world, SAMPLER, reason="ImagePullBackOff", message=PULL)
    message = message_of(world, job, "Ready")
    assert "ImagePullBackOff: other:1: not found" in message
    assert "chart sets image other:1" in message


QUOTA = 'pods "x" is forbidden: exceeded quota: few, requested: pods=1, used: pods=0, limited: 0'


def test_a_quota_without_room_for_samplers_is_on_the_job(world: World, job: Key) -> None:
    failure: dict[str, Any] = {"type": "ReplicaFailure", "status": "True", "message": QUOTA}
    world.set_status(
        "deployment",
        "job-main",
        {"conditions": [{**failure, "reason": "FailedCreate"}], "observedGeneration": 1},
    )
    message = message_of(world, job, "Ready")
    assert f"SamplerPool job-main: 0 of 2 pods are ready. {QUOTA}. Raise the Res" in message
    assert "or lower what spec.samplers[0].template asks for." in message


def test_a_quota_without_room_for_the_trainer_is_on_the_job(world: World, job: Key) -> None:
    trainer = begin(world, job)
    note = f"Error creating: {QUOTA}"
    warn(world, kinds.PYTORCH_JOB, trainer, reason="FailedCreatePod", note=note)
    message = message_of(world, job, "Ready")
    assert f"PyTorchJob {trainer} has no pod: FailedCreatePod: Error creating: {QUOTA}" in message
    assert "or lower what spec.trainer asks for." in message
