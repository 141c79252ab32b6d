"""A job goes on with the run of one that is gone, and no two jobs have a run at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubernetes import client

from rl_contracts.documents.run import PolicyPointer
from rl_operator.kube import kinds, names
from rl_operator.kube.api_errors import ApiConflictError
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.kinds import Key
from rl_operator.kube.metadata import Meta
from rl_operator.stores.claims import Claims
from tests.contract.rl_operator.jobs.test_deletion import (
    finalizers,
    reconcile,
    reconcile_until_gone,
)
from tests.contract.rl_operator.world import World
from tests.kube.api_requests import delete_all
from tests.waiting import until

POLICY = PolicyPointer(version=3, epoch=2, step=7, prefix="p/", manifest_sha256="d")
LEASES = kinds.LEASE


@pytest.fixture
def run(world: World) -> str:
    """A run that is half done; its job is still there."""
    world.make_secret()
    world.upload_inputs()
    first = world.make_job("first")
    run = str(world.settle(first)["runId"])
    world.write_run(
        run, namespace=world.namespace, job="first", policy=POLICY, step=7, steps=60, epoch=2
    )
    return run


def delete_job(world: World, name: str) -> None:
    """As the user; the test is the garbage collector of what the job owned."""
    world.apiserver.kubectl("-n", world.namespace, "delete", "rljob", name)
    for kind in (kinds.SAMPLER_POOL, kinds.DEPLOYMENT, kinds.PYTORCH_JOB, kinds.POD):
        delete_all(world.apiserver.requests, kind, world.namespace)


def stalled(world: World, job: Key) -> tuple[str, str]:
    condition = world.condition(job, "Stalled")
    return condition.get("reason", ""), condition.get("message", "")


def test_run_is_adopted_only_after_its_first_job_is_deleted(world: World, run: str) -> None:
    second = world.make_job("second", runId=run)
    world.settle(second)
    reason, message = stalled(world, second)
    assert reason == "RunInUse"
    assert message == f"spec.runId = '{run}': RLJob first has this run. Delete that job first."
    assert [pool["metadata"]["name"] for pool in world.objects(kinds.SAMPLER_POOL)] == [
        "first-main"
    ]

    delete_job(world, "first")
    status = world.settle(second)
    assert stalled(world, second) == ("", "")
    assert status["runId"] == run
    assert (status["progress"]["step"], status["weights"]["version"]) == (7, 3)
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels["rl-operator.io/run"] == run
    for pod in ("second-main-x-1", "second-main-x-2"):
        world.start_pod(pod, of=deployment)
        world.register(run, pod)
    assert world.settle(second)["attempt"] == 1
    trainer = world.cluster.get(kinds.PYTORCH_JOB, world.namespace, "second-1")
    assert trainer is not None
    worker = trainer["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    variables = {variable["name"]: variable["value"] for variable in worker["containers"][0]["env"]}
    assert variables["RL_RUN"] == run


@pytest.mark.soak
def test_second_adopter_waits_until_the_first_is_deleted(world: World, run: str) -> None:
    delete_job(world, "first")
    second, third = (world.make_job(name, runId=run) for name in ("second", "third"))
    world.settle(second)
    world.settle(third)
    assert stalled(world, second) == ("", "")
    assert stalled(world, third)[1].startswith(f"spec.runId = '{run}': RLJob second has this run.")
    delete_job(world, "second")
    world.start_operator()
    world.settle(third)
    assert stalled(world, third) == ("", "")
    (lease,) = [
        manifest
        for manifest in world.objects(LEASES)
        if manifest["metadata"]["name"] == f"run-{run}"
    ]
    assert lease["spec"]["holderIdentity"].startswith("third/")


def test_concurrent_claim_of_a_run_is_a_conflict(
    world: World, run: str, api: client.ApiClient
) -> None:
    delete_job(world, "first")
    jobs = [world.make_job(name, runId=run) for name in ("second", "third")]
    metas = []
    for job in jobs:
        raw = world.cluster.get(kinds.RLJOB, job.namespace, job.name)
        assert raw is not None
        metas.append(Meta.parse(raw))
    theirs = Claims(cluster=world.cluster)
    between = [lambda: theirs.take("run-x", kinds.RLJOB, metas[1])]

    class Raced(Cluster):
        """Another one makes the Lease just after it was found missing."""

        def get(self, kind: kinds.Kind, namespace: str, name: str) -> dict[str, Any] | None:
            manifest = super().get(kind, namespace, name)
            if manifest is None and between:
                assert between.pop()() == ""
            return manifest

    raced = Raced(api, may_write=lambda: None, count=lambda verb, kind: None)
    ours = Claims(cluster=raced)
    with pytest.raises(ApiConflictError):
        ours.take("run-x", kinds.RLJOB, metas[0])
    assert ours.take("run-x", kinds.RLJOB, metas[0]) == "third"
    theirs.release("run-x", metas[0])  # not its own
    assert ours.take("run-x", kinds.RLJOB, metas[0]) == "third"
    theirs.release("run-x", metas[1])
    assert ours.take("run-x", kinds.RLJOB, metas[0]) == ""


@pytest.mark.soak
def test_adoption_waits_for_pods_of_the_former_job(world: World, run: str) -> None:
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    world.start_pod("first-main-x-1", of=deployment)
    world.apiserver.kubectl("-n", world.namespace, "delete", "rljob", "first")
    second = world.make_job("second", runId=run)
    world.settle(second)
    assert "first-main-x-1" in stalled(world, second)[1]
    assert stalled(world, second)[0] == "RunInUse"
    world.apiserver.kubectl(
        "-n",
        world.namespace,
        "label",
        "pod",
        "first-main-x-1",
        "--overwrite",
        f"{names.RUN_LABEL}=other",
        f"{names.JOB_LABEL}=other",
        f"{names.beside(run)}=first",
    )
    world.settle(second)
    assert stalled(world, second)[0] == "RunInUse", "as it serves another run, too"
    world.apiserver.kubectl("-n", world.namespace, "delete", "pod", "--all", "--force")
    world.settle(second)
    assert stalled(world, second) == ("", "")


@pytest.mark.parametrize("known", [False, True], ids=["no such run", "of another namespace"])
def test_adoption_of_an_unknown_run_is_refused(world: World, *, known: bool) -> None:
    world.make_secret()
    world.upload_inputs()
    name = f"of-{world.namespace}"
    if known:
        world.write_run(name, namespace="elsewhere", job="theirs")
    job = world.make_job(runId=name)
    world.settle(job)
    assert stalled(world, job)[0] == "RunNotFound"
    assert stalled(world, job)[1].startswith(f"spec.runId = '{name}'")


def test_deleting_a_refused_adopter_keeps_the_run_s_data(world: World, run: str) -> None:
    second = world.make_job("second", runId=run, lifecycle={"dataPolicy": "Delete"})
    world.settle(second)
    world.apiserver.kubectl("-n", world.namespace, "delete", "rljob", "second", "--timeout=30s")
    assert world.stores.runs.get(run) is not None


def reconciled_finalizers(world: World, job: Key) -> list[str]:
    reconcile(world, job)
    return finalizers(world, job)


@pytest.mark.soak
@pytest.mark.parametrize("restored", [False, True], ids=["after a stop", "with our finalizer"])
def test_deleting_a_refused_adopter_that_has_the_finalizer_keeps_the_run_s_data(
    world: World, run: str, *, restored: bool
) -> None:
    second = world.make_job(
        "second", runId=run, stop=not restored, lifecycle={"dataPolicy": "Delete"}
    )
    if restored:  # as the manifest of a backup has it, which kubectl owns then
        patch = json.dumps({"metadata": {"finalizers": [names.FINALIZER]}})
        patched = ("patch", "rljob", "second", "--type=merge", "-p")
        world.apiserver.kubectl("-n", world.namespace, *patched, patch)
    else:
        until(lambda: reconciled_finalizers(world, second) == [names.FINALIZER], what="it is held")
    world.apiserver.kubectl("-n", world.namespace, "delete", "rljob", "second", "--wait=false")
    reconcile_until_gone(world, second)
    assert world.stores.runs.get(run) is not None


def test_run_id_is_immutable(world: World, run: str) -> None:
    for patch in ({"runId": run}, {"runId": None}):
        name = "with" if patch["runId"] is None else "without"
        world.make_job(name, **({"runId": "a"} if name == "with" else {}))
        refused = world.apiserver.kubectl(
            "-n",
            world.namespace,
            "patch",
            "rljob",
            name,
            "--type=merge",
            "-p",
            json.dumps({"spec": patch}),
            check=False,
        )
        assert "spec.runId cannot change" in refused.stderr


def test_adopting_a_succeeded_run_completes_the_job(world: World, run: str) -> None:
    delete_job(world, "first")
    outcome = {"kind": "Succeeded", "reason": "Done", "message": "All.", "final_model": "s3://f"}
    world.write_run(run, namespace=world.namespace, job="first", step=60, steps=60, outcome=outcome)
    status = world.settle(world.make_job("second", runId=run))
    assert (status["phase"], status["finalModel"], status["attempt"]) == ("Succeeded", "s3://f", 0)
