"""A job's life on a real API server: what is written, and that nothing is written twice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rl_contracts.documents.run import PolicyPointer
from rl_operator.kube import kinds, metrics
from rl_operator.kube.api_errors import ApiConflictError
from rl_operator.kube.kinds import Key, Kind
from tests.contract.rl_operator.reconciling import CrashError
from tests.contract.rl_operator.world import World
from tests.kube.apiserver import apply
from tests.samples.manifests import changed

POLICY = PolicyPointer(version=1, epoch=1, step=0, prefix="p/", manifest_sha256="d")


@pytest.fixture
def job(world: World) -> Key:
    world.make_secret()
    world.upload_inputs()
    return world.make_job()


def names_of(world: World, kind: kinds.Kind) -> list[str]:
    return sorted(manifest["metadata"]["name"] for manifest in world.objects(kind))


def phase_metric(job: Key, phase: str) -> float | None:
    labels = {"rljob_namespace": job.namespace, "rljob": job.name, "phase": phase}
    return metrics.REGISTRY.get_sample_value("rl_operator_job_phase", labels)


def start_samplers(world: World, key: Key) -> str:
    """Reconcile until the pool's Deployment is there; its pods register."""
    world.settle(key)
    raw = world.cluster.get(kinds.RLJOB, key.namespace, key.name)
    assert raw is not None
    run = str(raw["metadata"]["uid"])
    world.start_samplers(run)
    return run


def start_trainer(world: World, key: Key, attempt: int = 1) -> dict[str, Any]:
    """Reconcile until the attempt's job object is there, and run its pod."""
    status = world.settle(key)
    assert status["attempt"] == attempt
    trainer = world.cluster.get(kinds.PYTORCH_JOB, world.namespace, f"job-{attempt}")
    assert trainer is not None
    world.start_pod(f"job-{attempt}-worker-0", of=trainer)
    return trainer


def reasons(world: World) -> set[str]:
    return {event["reason"] for event in world.objects(kinds.EVENT)}


def test_job_goes_from_creation_to_completion(world: World, job: Key) -> None:
    run = start_samplers(world, job)
    start_trainer(world, job)
    world.write_run(run, policy=POLICY, step=0, steps=60)
    world.register(run, "job-main-x-1", state="ready", version=1)
    world.apiserver.kubectl("-n", world.namespace, "scale", "spool/job-main", "--replicas=1")
    status = world.settle(job)
    assert (status["phase"], status["weights"]["version"]) == ("Running", 1)

    outcome = {
        "kind": "Succeeded",
        "reason": "Done",
        "message": "60 steps.",
        "final_model": "s3://f",
    }
    world.write_run(run, policy=POLICY, step=60, steps=60, outcome=outcome)
    world.end_trainer("job-1", "Succeeded", exit_code=0)
    status = world.settle(job)
    assert (status["phase"], status["finalModel"]) == ("Succeeded", "s3://f")
    assert phase_metric(job, "Succeeded") == 1
    assert phase_metric(job, "Running") is None
    assert world.condition(job, "Complete")["status"] == "True"
    assert names_of(world, kinds.SAMPLER_POOL) == []
    assert names_of(world, kinds.PYTORCH_JOB) == ["job-1"]  # for its logs
    expected = {"PoolCreated", "AttemptStarted", "PolicyPublished", "Completed"}
    assert expected <= reasons(world)


def test_settled_job_gets_no_writes_even_from_a_new_operator(world: World, job: Key) -> None:
    start_samplers(world, job)
    start_trainer(world, job)
    world.settle(job)
    world.start_operator()
    before = world.writes.count
    world.settle(job)
    assert world.writes.count == before


@pytest.mark.soak
def test_failed_attempt_is_retried_until_the_backoff_limit(world: World, job: Key) -> None:
    world.make_job(lifecycle={"backoffLimit": 1, "restartBackoffSeconds": 60})
    run = start_samplers(world, job)
    start_trainer(world, job)
    world.write_run(run)
    world.end_trainer("job-1", "Failed", exit_code=137)
    status = world.settle(job)
    assert (status["failures"], status["phase"]) == (1, "Recovering")
    assert (
        status["lastFailure"]["message"] == "Exit code 137 by SIGKILL. End of its log: last words"
    )
    assert status["lastFailure"]["pod"] == "job-1-worker-0"

    assert world.operator is not None
    world.operator.skew = 65  # the backoff is over
    start_trainer(world, job, attempt=2)
    world.end_trainer("job-2", "Failed", exit_code=1)
    status = world.settle(job)
    assert (status["failures"], status["phase"]) == (2, "Failed")
    assert world.condition(job, "Failed")["reason"] == "TrainerFailed"
    assert world.condition(job, "Stalled")["status"] == "True"
    assert names_of(world, kinds.PYTORCH_JOB) == ["job-1", "job-2"]
    assert names_of(world, kinds.SAMPLER_POOL) == []


@pytest.mark.soak
def test_outcome_written_after_the_last_poll_counts(world: World, job: Key) -> None:
    run = start_samplers(world, job)
    start_trainer(world, job)
    world.start_operator(fresh_readings=False)
    world.write_run(run)
    world.settle(job)
    outcome = {"kind": "Succeeded", "reason": "Trained", "message": "m", "final_model": "s3://f"}
    world.write_run(run, step=60, steps=60, outcome=outcome)
    world.end_trainer("job-1", "Succeeded", exit_code=0)
    status = world.settle(job)
    assert [(attempt["result"], attempt["reason"]) for attempt in status["attempts"]] == [
        ("Succeeded", "Trained")
    ]
    assert (status["phase"], status.get("failures", 0)) == ("Succeeded", 0)


@pytest.mark.soak
def test_stale_cached_read_does_not_end_an_attempt(world: World, job: Key) -> None:
    """A cached read that no watch has invalidated must not end an attempt."""
    run = start_samplers(world, job)
    start_trainer(world, job)
    world.write_run(run, policy=POLICY, step=1, steps=60)
    long_ago = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    pod = {"name": "pytorch", "state": long_ago}
    world.set_pod("job-1-worker-0", "Running", container=pod, ready=True)
    operator = world.start_operator(cache_seconds=3600.0)
    world.settle(job)
    world.end_trainer("job-1", "Failed", exit_code=137)
    late = world.stores.mongo.now() - 5000  # longer than progressDeadlineSeconds
    world.write_run(run, policy=POLICY, step=1, steps=60, progress_at=late)
    operator.jobs.reconcile(job)  # no watch has reported that the trainer has ended
    status = world.settle(job)
    assert (status["failures"], status["lastFailure"]["exitCode"]) == (1, 137)


def test_success_without_an_outcome_is_a_failure(world: World, job: Key) -> None:
    run = start_samplers(world, job)
    start_trainer(world, job)
    world.write_run(run)
    world.end_trainer("job-1", "Succeeded", exit_code=0)
    assert world.settle(job)["lastFailure"]["reason"] == "ExitedWithoutOutcome"


def test_trainer_refusal_stalls_without_counting_a_failure(world: World, job: Key) -> None:
    run = start_samplers(world, job)
    start_trainer(world, job)
    words = {"field": "spec.model.uri", "value": "s3://m", "remedy": "Take another."}
    outcome = {"kind": "Refused", "reason": "ModelUnsupported", "message": "No.", **words}
    world.write_run(run, outcome=outcome)
    world.end_trainer("job-1", "Failed", exit_code=2)
    status = world.settle(job)
    assert (status["failures"], status["phase"]) == (0, "Stalled")
    stalled = world.condition(job, "Stalled")
    assert stalled["reason"] == "ModelUnsupported"
    assert stalled["message"] == "spec.model.uri = 's3://m': No. Take another."
    assert world.operator is not None
    world.operator.skew = 60
    start_trainer(world, job, attempt=2)


def test_scaling_a_pool_changes_the_deployment_and_is_kept(world: World, job: Key) -> None:
    world.settle(job)
    world.apiserver.kubectl("-n", world.namespace, "scale", "spool/job-main", "--replicas=5")
    world.settle(job)
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    assert deployment["spec"]["replicas"] == 5
    world.make_job(lifecycle={"backoffLimit": 9})
    world.settle(job)
    (pool,) = world.objects(kinds.SAMPLER_POOL)
    assert pool["spec"]["replicas"] == 5


def test_foreign_edits_are_reverted(world: World, job: Key) -> None:
    world.settle(job)
    patch = '{"spec": {"replicas": 9, "template": {"spec": {"terminationGracePeriodSeconds": 1}}}}'
    world.apiserver.kubectl(
        "-n", world.namespace, "patch", "deployment", "job-main", "--type=merge", "-p", patch
    )
    world.settle(job)
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 30


def test_field_no_longer_declared_is_removed(world: World, job: Key) -> None:
    kept = {"autoscaling": {"minReplicas": 2}}
    template = {**kept, "engine": {"args": ["--x"]}, "nodeSelector": {"a": "b"}}
    world.make_job(samplers=[{"name": "main", "template": template}])
    world.settle(job)
    world.make_job(samplers=[{"name": "main", "template": kept}])
    world.settle(job)
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    pod = deployment["spec"]["template"]["spec"]
    assert "nodeSelector" not in pod
    assert "--x" not in pod["initContainers"][1]["args"]
    (pool,) = world.objects(kinds.SAMPLER_POOL)
    assert (pool["spec"]["template"].get("nodeSelector"), pool["spec"]["replicas"]) == (None, 2)
    owners = {
        (managed_field["manager"], managed_field["operation"])
        for managed_field in pool["metadata"]["managedFields"]
    }
    assert ("rl-operator", "Apply") in owners
    assert ("rl-operator", "Update") not in owners


def test_removing_a_group_deletes_its_pool(world: World, job: Key) -> None:
    world.make_job(samplers=[{"name": "main"}, {"name": "other"}])
    world.settle(job)
    assert names_of(world, kinds.SAMPLER_POOL) == ["job-main", "job-other"]
    world.make_job(samplers=[{"name": "other"}])
    world.settle(job)
    assert names_of(world, kinds.SAMPLER_POOL) == ["job-other"]


def test_create_does_not_overwrite_an_existing_object(world: World) -> None:
    """The API server's own behaviour, on which it rests that nothing is asked for first."""
    metadata = {"name": "mine", "namespace": world.namespace}
    manifests: dict[Kind, dict[str, Any]] = {
        kinds.CONFIG_MAP: {"data": {"a": "1"}},
        kinds.SAMPLER_POOL: {"spec": {"job": "job"}},
    }
    for kind, fields in manifests.items():
        manifest = {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": metadata,
            **fields,
        }
        made = world.cluster.create(kind, manifest, manager="test")
        with pytest.raises(ApiConflictError):  # though it would change nothing
            world.cluster.create(kind, manifest, manager="test")
        assert world.cluster.get(kind, world.namespace, "mine") == made


def test_job_of_another_controller_is_left_alone(world: World) -> None:
    world.make_secret()
    world.upload_inputs()
    other = world.make_job("other", managedBy="kueue.x-k8s.io/multikueue")
    world.writes.count = 0
    for _ in range(2):
        assert world.start_operator().jobs.reconcile(other) is None
    assert world.writes.count == 0
    assert world.status(other) == {"observedGeneration": -1}
    assert world.objects(kinds.SAMPLER_POOL) == []
    ours = {"spec": {"managedBy": "rl-operator.io/operator"}}
    refused = world.apiserver.kubectl(
        "-n",
        world.namespace,
        "patch",
        "rljob",
        "other",
        "--type=merge",
        "-p",
        json.dumps(ours),
        check=False,
    )
    assert "spec.managedBy and spec.runId cannot change" in refused.stderr
    assert "spec.managedBy" in apply(world.apiserver, changed("spec.managedBy", "example.org/mine"))


def test_object_of_another_owner_is_not_taken_over(world: World, job: Key) -> None:
    world.apply("rl-operator.io/v1alpha1", "SamplerPool", "job-main", spec={"job": "job"})
    world.settle(job)
    stalled = world.condition(job, "Stalled")
    assert (stalled["reason"], "SamplerPool job-main" in stalled["message"]) == ("NameTaken", True)
    pool = world.cluster.get(kinds.SAMPLER_POOL, world.namespace, "job-main")
    assert pool is not None
    assert "ownerReferences" not in pool["metadata"]
    world.cluster.delete(
        kinds.SAMPLER_POOL, world.namespace, "job-main", uid=pool["metadata"]["uid"]
    )
    world.settle(job)
    assert world.condition(job, "Stalled") == {}


def test_first_status_is_written_at_once(world: World, job: Key) -> None:
    operator = world.start_operator()
    operator.jobs.reconcile(job)
    assert world.status(job)["phase"] == "Pending"
    assert world.condition(job, "Ready")["reason"] == "CheckingInputs"


def test_cause_of_pods_that_do_not_start_is_reported_at_once(world: World, job: Key) -> None:
    world.settle(job)
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    world.start_pod("job-main-x-1", of=deployment)
    world.settle(job)
    waiting = {"reason": "ErrImagePull", "message": "not found"}
    world.set_pod("job-main-x-1", "Pending", container={"name": "x", "state": {"waiting": waiting}})
    world.settle(job)
    message = (
        "Pod job-main-x-1, container x: ImagePullBackOff: not found. The operator's chart sets "
        "image x (values images.*): check that the nodes can pull it."
    )
    assert message in world.condition(job, "Ready")["message"]
    assert world.condition(job, "SamplersReady")["message"] == message


def test_operator_crash_after_any_write_leads_to_the_same_state(world: World, job: Key) -> None:
    run = None
    for writes in range(1, 40):
        world.start_operator()
        world.writes.count, world.writes.crash_after = 0, writes % 4 + 1
        try:
            status = world.settle(job)
        except CrashError:
            continue
        if run is None and world.objects(kinds.DEPLOYMENT):
            run = start_samplers(world, job)
        elif status.get("attempt") == 1:
            break
    world.writes.crash_after = None
    assert world.settle(job)["attempt"] == 1
    assert names_of(world, kinds.PYTORCH_JOB) == ["job-1"]
    assert names_of(world, kinds.SAMPLER_POOL) == ["job-main"]
    (pool,) = world.objects(kinds.SAMPLER_POOL)
    assert pool["spec"]["replicas"] == 2


def test_reconcile_at_rest_costs_few_requests(
    world: World, job: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = world.start_operator(trust_seconds=3600.0)
    run = start_samplers(world, job)
    start_trainer(world, job)
    world.write_run(run, policy=POLICY, step=1, steps=60)
    world.settle(job)
    asked: list[str] = []
    requests = world.operators._requests
    send = requests.send

    def counted(method: str, path: str, *arguments: Any, **options: Any) -> Any:
        asked.append(f"{method} {path.rpartition(world.namespace)[2]}")
        return send(method, path, *arguments, **options)

    monkeypatch.setattr(requests, "send", counted)
    operator.jobs.reconcile(job)
    operator.pools.reconcile(Key("SamplerPool", world.namespace, "job-main"))
    assert len(asked) == 8, asked
    assert all(request.startswith("GET") for request in asked)


@pytest.mark.soak
def test_what_samplers_read_that_stay_after_their_job_is_made_again(world: World, job: Key) -> None:
    """A later release renders their pods with another name of it."""
    world.make_job(lifecycle={"cleanupPolicy": "None"})
    run = start_samplers(world, job)
    start_trainer(world, job)
    outcome = {"kind": "Succeeded", "reason": "Done", "message": "60 steps."}
    world.write_run(run, policy=POLICY, step=60, steps=60, outcome=outcome)
    world.end_trainer("job-1", "Succeeded", exit_code=0)
    assert world.settle(job)["phase"] == "Succeeded"
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    (read,) = [volume["configMap"]["name"] for volume in volumes if "configMap" in volume]
    world.apiserver.kubectl("-n", world.namespace, "delete", "configmap", read)
    world.start_operator()
    world.settle(job)
    assert read in names_of(world, kinds.CONFIG_MAP)
    before = world.writes.count
    world.settle(job)
    assert world.writes.count == before
