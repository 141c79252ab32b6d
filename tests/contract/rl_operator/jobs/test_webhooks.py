"""An admission webhook that does not answer, as training-operator's while that is away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rl_operator.kube import kinds
from rl_operator.kube.kinds import Key
from tests.contract.rl_operator.jobs.silent_webhook import CONFIGURATION, silent_webhook
from tests.contract.rl_operator.world import World
from tests.waiting import until

SUPERVISED: dict[str, Any] = {
    "algorithm": {"objective": "SFT"},
    "samplers": [],
    "reward": {},
    "training": {"steps": 60, "precision": "FP32"},
}


def a_trainer(name: str) -> dict[str, Any]:
    worker = {"replicas": 1, "template": {"spec": {"containers": []}}}
    return {
        "apiVersion": kinds.PYTORCH_JOB.api_version,
        "kind": kinds.PYTORCH_JOB.name,
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": {"Worker": worker}},
    }


@pytest.fixture
def silent(world: World) -> Iterator[str]:
    """Name of an active webhook for the namespace's PyTorchJobs that does not answer."""

    def create() -> str:
        command = ["create", "-n", world.namespace, "--dry-run=server", "-f", "-"]
        tried = json.dumps(a_trainer("tried"))
        return world.apiserver.kubectl(*command, stdin=tried, check=False).stderr

    with silent_webhook(world, kinds.PYTORCH_JOB, ["CREATE"], try_out=create) as name:
        yield name


def await_ready_condition(world: World, key: Key, reason: str) -> dict[str, Any]:
    """The Ready condition, once it has a reason; each check reconciles once."""
    operator = world.operator or world.start_operator()

    def look() -> dict[str, Any] | None:
        operator.jobs.reconcile(key)
        condition = world.condition(key, "Ready")
        return condition if condition.get("reason") == reason else None

    condition = until(look, what=reason, seen=lambda: world.status(key))
    assert condition is not None
    return condition


def test_job_names_the_silent_webhook_and_continues_once_it_answers(
    world: World, silent: str
) -> None:
    world.make_secret()
    world.upload_inputs()
    key = world.make_job(**SUPERVISED)
    condition = await_ready_condition(world, key, "WebhookUnavailable")
    assert condition["message"].startswith("pytorchjobs/job-1 cannot be written for now")
    assert f'failed calling webhook "{silent}"' in condition["message"]
    assert world.condition(key, "Reconciling")["status"] == "True"
    assert world.condition(key, "Stalled") == {}
    assert world.status(key)["attempt"] == 1

    world.apiserver.kubectl("delete", CONFIGURATION, silent)
    await_ready_condition(world, key, "TrainerStarting")
    assert world.cluster.get(kinds.PYTORCH_JOB, world.namespace, "job-1") is not None
    assert world.status(key)["failures"] == 0
