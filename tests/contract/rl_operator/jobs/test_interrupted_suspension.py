"""Suspensions under crashes, resumptions and webhooks: the trainer ends, no attempt comes twice."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from rl_operator.apply.requeue import SOON_SECONDS
from rl_operator.kube import kinds
from rl_operator.kube.kinds import Key, Kind
from tests.contract.rl_operator.jobs.silent_webhook import silent_webhook
from tests.contract.rl_operator.jobs.test_suspend import at_work, suspend
from tests.contract.rl_operator.jobs.test_webhooks import SUPERVISED
from tests.contract.rl_operator.reconciling import CrashError
from tests.contract.rl_operator.world import World
from tests.examples import first

MOST_WRITES = 8
"""Of a suspension."""


def resume_with_an_edit(world: World, job: Key) -> None:
    spec = {"suspend": False, "trainer": {"env": [{"name": "EDITED", "value": "1"}]}}
    body = json.dumps({"spec": spec})
    command = ("patch", "rljob", job.name, "--type=merge", "-p", body)
    world.apiserver.kubectl("-n", job.namespace, *command)


def trainer(world: World) -> dict[str, Any] | None:
    return world.cluster.get(kinds.PYTORCH_JOB, world.namespace, "job-1")


@pytest.mark.parametrize("crash_after", first(1, range(1, MOST_WRITES)))
def test_a_crash_between_any_two_writes(world: World, crash_after: int) -> None:
    job = at_work(world)
    world.settle(job)
    before = trainer(world)
    assert before is not None
    suspend(world, job, suspended=True)
    assert world.operator is not None
    world.writes.crash_after = world.writes.count + crash_after
    with contextlib.suppress(CrashError):
        for _ in range(MOST_WRITES):
            world.operator.jobs.reconcile(job)
    world.writes.crash_after = None
    resume_with_an_edit(world, job)
    world.start_operator()
    for _ in range(MOST_WRITES):
        world.reconcile(job)
    after = trainer(world)
    assert after is None or after["metadata"]["uid"] == before["metadata"]["uid"]


def test_a_resumption_right_after_the_deletion(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = at_work(world)
    world.settle(job)
    delete = world.operators.delete

    def delete_and_resume(kind: Kind, namespace: str, name: str, *, uid: str) -> None:
        delete(kind, namespace, name, uid=uid)
        if kind == kinds.PYTORCH_JOB:
            resume_with_an_edit(world, job)

    monkeypatch.setattr(world.operators, "delete", delete_and_resume)
    suspend(world, job, suspended=True)
    for _ in range(MOST_WRITES):
        world.reconcile(job)
    assert trainer(world) is None
    assert world.status(job)["attempts"][0]["result"] != "Active" or world.status(job)["operation"]


def test_a_trainer_without_samplers_is_deleted_in_the_next_reconcile(world: World) -> None:
    world.make_secret()
    world.upload_inputs()
    job = world.make_job(**SUPERVISED)
    world.settle(job)
    suspend(world, job, suspended=True)
    assert world.operator is not None
    assert world.operator.jobs.reconcile(job) == SOON_SECONDS
    world.operator.jobs.reconcile(job)
    assert world.objects(kinds.PYTORCH_JOB) == []


@pytest.mark.soak
def test_a_job_whose_edit_is_refused_stops_although_no_config_map_can_be_made(world: World) -> None:
    job = at_work(world)
    world.settle(job)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tried"}}
    create = ("create", "-n", world.namespace, "--dry-run=server", "-f", "-")

    def try_out() -> str:
        done = world.apiserver.kubectl(*create, stdin=json.dumps(body), check=False)
        return done.stderr

    volume = {"name": "v", "emptyDir": {}, "configMap": {"name": "two sources"}}
    scaled = {"autoscaling": {"minReplicas": 2}, "maxConcurrentGroups": 3}
    template = scaled | {"podTemplate": {"spec": {"volumes": [volume]}}}
    with silent_webhook(world, kinds.CONFIG_MAP, ["CREATE"], try_out=try_out):
        world.make_job(samplers=[{"name": "main", "template": template}])
        world.reconcile(job)
        assert world.condition(job, "Stalled")["reason"] == "PodRefused"
        suspend(world, job, suspended=True)
        world.settle(job)
        assert world.objects(kinds.PYTORCH_JOB) == []
