"""What a deleted job leaves: nothing in Kubernetes, its data as ``dataPolicy`` says."""

from __future__ import annotations

import time

import pytest

from rl_contracts.spec.pool_status import SamplerPoolStatus
from rl_contracts.spec.status import RLJobStatus
from rl_contracts.stores.clients.multipart import Multipart, unfinished
from rl_operator.apply.status_writer import StatusWriter
from rl_operator.kube import kinds
from rl_operator.kube.api_errors import ApiConflictError
from rl_operator.kube.kinds import Key, Kind
from rl_operator.kube.metadata import Meta
from rl_operator.kube.names import ABANDON_ANNOTATION, FINALIZER
from rl_operator.render.samplers import deployment
from tests.contract.rl_operator.world import World
from tests.waiting import until


def prepared(world: World, policy: str) -> tuple[Key, str]:
    """A settled job with data of its run."""
    world.make_secret()
    world.upload_inputs()
    job = world.make_job(lifecycle={"dataPolicy": policy})
    run = str(world.settle(job)["runId"])
    world.write_run(run)
    world.stores.objects.put(f"{world.stores.run_prefix(run)}policies/x", b"1")
    return job, run


def finalizers(world: World, job: Key) -> list[str]:
    manifest = world.cluster.get(kinds.RLJOB, job.namespace, job.name)
    assert manifest is not None
    return list(manifest["metadata"].get("finalizers", []))


def delete(world: World, job: Key) -> None:
    world.apiserver.kubectl("-n", job.namespace, "delete", "rljob", job.name, "--wait=false")


def reconcile(world: World, job: Key) -> None:
    assert world.operator is not None
    world.operator.jobs.reconcile(job)


def gone(world: World, job: Key) -> bool:
    return world.cluster.get(kinds.RLJOB, job.namespace, job.name) is None


def reconcile_until_gone(world: World, job: Key) -> None:
    """Several times where the stores are slow: a reconcile does not wait for them long."""

    def look() -> bool:
        reconcile(world, job)
        return gone(world, job)

    until(look, what="the job's deletion")


def test_a_retained_run_needs_no_finalizer(world: World) -> None:
    job, run = prepared(world, "Retain")
    assert finalizers(world, job) == []
    delete(world, job)
    assert gone(world, job)
    assert world.stores.runs.get(run) is not None
    reconcile(world, job)  # a late look at a job that is gone


@pytest.mark.parametrize(
    ("kind", "before"),
    [(kinds.RLJOB, RLJobStatus()), (kinds.SAMPLER_POOL, SamplerPoolStatus())],
    ids=["job", "pool"],
)
def test_status_write_to_a_deleted_object_is_a_conflict(
    world: World, kind: Kind, before: RLJobStatus | SamplerPoolStatus
) -> None:
    job, _ = prepared(world, "Retain")
    (raw,) = world.objects(kind)
    seen = Meta.parse(raw)
    delete(world, job)
    world.apiserver.kubectl("-n", world.namespace, "delete", kind.plural, "--all")
    writer = StatusWriter(world.cluster, clock=time.monotonic, seconds=0.0)
    after = before.model_copy(update={"observed_generation": 7})
    with pytest.raises(ApiConflictError, match=f'"{seen.name}" not found'):
        writer.write(kind, seen, before=before, after=after, urgent=True)


def test_merge_into_a_deleted_object_is_a_conflict(world: World) -> None:
    """As a pool is scaled, or a Deployment emptied."""
    job, _ = prepared(world, "Retain")
    seen = [
        (kind, Meta.parse(raw))
        for kind in (kinds.SAMPLER_POOL, kinds.DEPLOYMENT)
        for raw in world.objects(kind)
    ]
    delete(world, job)
    for kind, meta in seen:
        world.apiserver.kubectl("-n", world.namespace, "delete", kind.plural, meta.name)
        with pytest.raises(ApiConflictError, match=f'"{meta.name}" not found'):
            world.cluster.merge(kind, deployment.emptied(meta))
    assert len(seen) == 2


def test_deleting_a_job_deletes_its_data(world: World) -> None:
    job, run = prepared(world, "Delete")
    assert finalizers(world, job) == [FINALIZER]
    objects, prefix = world.stores.objects, world.stores.run_prefix(run)
    Multipart(objects._requests, f"{prefix}policies/y").put(1, [memoryview(b"killed meanwhile")])
    delete(world, job)
    assert not gone(world, job)
    reconcile(world, job)  # stops the writers first
    assert world.objects(kinds.SAMPLER_POOL) == []
    reconcile_until_gone(world, job)
    assert world.stores.runs.get(run) is None
    assert objects.list(prefix) == []
    assert unfinished(objects._client, bucket=objects.bucket, prefix=prefix) == set()
    assert objects.list(f"{world.settings.s3_prefix}model/")


@pytest.mark.parametrize("broken", ["no Secret", "no model"])
def test_job_that_never_started_is_deleted_at_once(world: World, broken: str) -> None:
    if broken == "no model":
        world.make_secret()
    job = world.make_job(lifecycle={"dataPolicy": "Delete"})
    world.settle(job)
    assert world.condition_now(job, "Stalled")
    assert finalizers(world, job) == []
    delete(world, job)
    assert gone(world, job)


def test_data_policy_may_change(world: World) -> None:
    job, _ = prepared(world, "Delete")
    world.make_job(lifecycle={"dataPolicy": "Retain"})
    world.settle(job)
    assert finalizers(world, job) == []


@pytest.mark.parametrize("way_out", ["the Secret is mended", "the data are given up"])
def test_blocked_deletion_names_its_cause_and_can_be_abandoned(world: World, way_out: str) -> None:
    job, run = prepared(world, "Delete")
    world.make_secret(s3SecretKey="wrong")
    delete(world, job)
    reconcile(world, job)
    reconcile(world, job)
    stalled = world.condition(job, "Stalled")
    assert (stalled["reason"], ABANDON_ANNOTATION in stalled["message"]) == (
        "DataDeletionBlocked",
        True,
    )
    assert (
        f". Fix the cause, or abandon the data: kubectl annotate -n {job.namespace} rljob job "
        in (stalled["message"])
    )
    assert world.status(job)["phase"] == "Terminating"
    if way_out == "the Secret is mended":
        world.make_secret()
    else:
        world.apiserver.kubectl(
            "-n", job.namespace, "annotate", "rljob", job.name, f"{ABANDON_ANNOTATION}=true"
        )
    reconcile_until_gone(world, job)
    assert (world.stores.runs.get(run) is None) is (way_out == "the Secret is mended")


def test_pods_are_stopped_before_data_are_deleted(world: World) -> None:
    job, run = prepared(world, "Delete")
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    world.start_pod("job-main-x-1", of=deployment)
    delete(world, job)
    for _ in range(2):
        reconcile(world, job)
    assert world.stores.runs.get(run) is not None  # a pod could still write
    world.apiserver.kubectl(
        "-n", job.namespace, "delete", "pod", "job-main-x-1", "--force", "--grace-period=0"
    )
    reconcile_until_gone(world, job)


def test_finished_job_is_deleted_after_its_ttl(world: World) -> None:
    job, run = prepared(world, "Retain")
    world.make_job(lifecycle={"ttlSecondsAfterFinished": 60, "dataPolicy": "Retain"})
    outcome = {"kind": "Succeeded", "reason": "Done", "message": "m"}
    world.write_run(run, outcome=outcome)
    world.settle(job)
    assert not gone(world, job)
    assert world.operator is not None
    world.operator.skew = 61
    reconcile(world, job)
    assert gone(world, job)
