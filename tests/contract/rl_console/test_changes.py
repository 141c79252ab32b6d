"""Commands that change a job, against a real API server."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rl_console.actions import suspension
from rl_console.cluster.kube import Cluster as KubeCluster
from rl_console.pods import PodView
from tests.contract.rl_console.conftest import Run
from tests.contract.rl_console.world import NAMESPACE, World, condition, pod, put_status
from tests.samples.manifests import a_job


@pytest.fixture
def job(world: World, request: pytest.FixtureRequest) -> Iterator[str]:
    """A job of this test alone, without a status; tables of other tests do not show it."""
    name: str = request.node.name.replace("_", "-")[5:35].rstrip("-")
    manifest = a_job(name, namespace=NAMESPACE, runId="")
    manifest["metadata"]["labels"] = {"team": "a"}
    world.apiserver.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    yield name
    world.apiserver.kubectl("-n", NAMESPACE, "delete", "rljob", name)


def get(world: World, kind: str, name: str) -> dict[str, Any]:
    manifest: dict[str, Any] = world.apiserver.get(kind, name, "-n", NAMESPACE)
    return manifest


def test_a_job_is_suspended_and_goes_on(world: World, run: Run, job: str) -> None:
    assert run("suspend", job, kubeconfig=world.admin).code == 0
    assert get(world, "rljob", job)["spec"]["suspend"] is True
    assert run("resume", job, kubeconfig=world.admin).code == 0
    assert get(world, "rljob", job)["spec"]["suspend"] is False


def test_one_who_impersonates_another_has_the_rights_of_the_other(
    world: World, run: Run, job: str, tmp_path: Path
) -> None:
    written = json.loads(world.admin.read_text())
    written["users"][0]["user"]["as"] = f"system:serviceaccount:{NAMESPACE}:nobody"
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(written))
    done = run("suspend", job, kubeconfig=file)
    assert done.code == 4
    assert f'User "system:serviceaccount:{NAMESPACE}:nobody" cannot get' in done.err
    assert not get(world, "rljob", job)["spec"].get("suspend")


def test_a_job_is_stopped_once_and_for_good(
    world: World, run: Run, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def operate(_: float) -> None:
        generation = get(world, "rljob", job)["metadata"]["generation"]
        final = condition("Failed", "True", "Stopped", "spec.stop ended the run at step 12 of 60.")
        status = {"observedGeneration": generation, "phase": "Stopped", "conditions": [final]}
        put_status(world.apiserver, "rljob", job, status)

    monkeypatch.setattr(suspension, "pause", operate)
    done = run("stop", job, "--yes", "--wait", "60", kubeconfig=world.admin)
    assert (done.code, done.out) == (
        0,
        f"rljob.rl-operator.io/{job} Stopped: spec.stop ended the run at step 12 of 60.\n",
    )
    assert get(world, "rljob", job)["spec"]["stop"] is True
    again = run("stop", job, "--yes", kubeconfig=world.admin)
    assert (again.code, "it was stopped" in again.err) == (6, True)
    back = ("-n", NAMESPACE, "patch", "rljob", job, "--type=merge", "-p", '{"spec":{"stop":false}}')
    refused = world.apiserver.kubectl(*back, check=False)
    assert "spec.stop cannot be taken back" in refused.stderr


def test_waiting_ends_when_the_operator_says_so(
    world: World, run: Run, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def operate(_: float) -> None:
        generation = get(world, "rljob", job)["metadata"]["generation"]
        conditions = [condition("Suspended", "True", "Requested")]
        status = {"observedGeneration": generation, "conditions": conditions}
        put_status(world.apiserver, "rljob", job, status)

    monkeypatch.setattr(suspension, "pause", operate)
    done = run("suspend", job, "--wait", "60", kubeconfig=world.admin)
    assert (done.code, done.out) == (
        0,
        f"rljob.rl-operator.io/{job} suspended: all its pods are gone\n",
    )


def test_a_failed_run_is_continued_by_a_new_job(
    world: World, run: Run, job: str, tmp_path: Path
) -> None:
    before = failed(world, job)
    saved = tmp_path / "again.yaml"
    done = run("retry", job, "--yes", "--save", str(saved), kubeconfig=world.admin)
    assert (done.code, done.err) == (0, f"note: {saved} has the manifest of the new job\n")
    after = get(world, "rljob", job)
    assert after["metadata"]["uid"] != before
    assert after["metadata"]["labels"] == {"team": "a"}
    assert after["spec"]["runId"] == "run-7"
    assert yaml.safe_load(saved.read_text())["spec"] == after["spec"]


def failed(world: World, job: str) -> str:
    """The UID of the job, which has failed."""
    status = {"phase": "Failed", "runId": "run-7", "observedGeneration": 1}
    status["conditions"] = [condition("Failed", "True", "BackoffLimitExceeded")]
    put_status(world.apiserver, "rljob", job, status)
    uid: str = get(world, "rljob", job)["metadata"]["uid"]
    return uid


@pytest.mark.parametrize("late", [False, True])
def test_a_job_that_is_made_again_names_what_to_commit(
    world: World, run: Run, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """By a program that applies manifests from Git, before or after the retry sees it gone."""
    failed(world, job)
    asked = KubeCluster.raw_job
    names: list[str] = []

    def made_again() -> None:
        manifest = a_job(job, namespace=NAMESPACE, runId="")
        world.apiserver.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def raw_job(cluster: KubeCluster, namespace: str, name: str) -> dict[str, Any]:
        names.append(name)
        if len(names) == 1:
            return asked(cluster, namespace, name)
        if not late:
            made_again()
        try:
            return asked(cluster, namespace, name)
        finally:
            if late:
                made_again()

    monkeypatch.setattr(KubeCluster, "raw_job", raw_job)
    saved = tmp_path / "again.yaml"
    done = run("retry", job, "--yes", "--save", str(saved), kubeconfig=world.admin)
    assert done.code == 6
    assert "applies manifests from Git, made the job again at once. It has begun" in done.err
    assert "Commit `runId: run-7` below `spec` of its manifest" in done.err
    assert f"`kubectl delete rljob {job} -n {NAMESPACE} --kubeconfig {world.admin}`" in done.err


@pytest.mark.parametrize(("allowed", "forbidden"), [("create", "delete"), ("delete", "create")])
def test_a_retry_that_may_not_delete_or_create_does_nothing(
    world: World, run: Run, job: str, tmp_path: Path, allowed: str, forbidden: str
) -> None:
    uid = failed(world, job)
    name = f"may-{allowed}"
    for made in (
        ("serviceaccount", name),
        ("role", name, f"--verb=get,{allowed}", "--resource=rljobs.rl-operator.io"),
        ("rolebinding", name, f"--role={name}", f"--serviceaccount={NAMESPACE}:{name}"),
    ):
        world.apiserver.kubectl("-n", NAMESPACE, "create", *made)
    written = json.loads(world.admin.read_text())
    written["users"][0]["user"]["as"] = f"system:serviceaccount:{NAMESPACE}:{name}"
    file, saved = tmp_path / "kubeconfig", tmp_path / "again.yaml"
    file.write_text(json.dumps(written))
    done = run("retry", job, "--yes", "--save", str(saved), kubeconfig=file)
    assert (done.code, saved.exists()) == (4, False)
    assert f"cannot {forbidden} resource" in done.err
    assert get(world, "rljob", job)["metadata"]["uid"] == uid


def test_a_retry_asks_first(
    world: World, run: Run, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    before = failed(world, job)
    assert run("retry", job, kubeconfig=world.admin).code == 130
    assert get(world, "rljob", job)["metadata"]["uid"] == before


def test_data_that_would_be_deleted_refuse_a_retry_and_the_remedy_works(
    world: World, run: Run, job: str
) -> None:
    change = json.dumps({"spec": {"lifecycle": {"dataPolicy": "Delete"}}})
    world.apiserver.kubectl("-n", NAMESPACE, "patch", "rljob", job, "--type=merge", "-p", change)
    failed(world, job)
    done = run("retry", job, "--yes", kubeconfig=world.admin)
    assert done.code == 6
    remedy = done.err.partition("Set it to Retain first: `kubectl ")[2].partition("`")[0]
    chosen = f"{job} -n {NAMESPACE} --kubeconfig {world.admin} "
    assert remedy.startswith(f"patch rljob {chosen}")
    world.apiserver.kubectl(*shlex.split(remedy))
    assert get(world, "rljob", job)["spec"]["lifecycle"]["dataPolicy"] == "Retain"


def test_a_pool_is_scaled_through_its_subresource(world: World, run: Run) -> None:
    assert run("scale", "live", "5", kubeconfig=world.admin).code == 0
    assert get(world, "samplerpool", "live-main")["spec"]["replicas"] == 5
    assert run("scale", "live", "2", kubeconfig=world.admin).out == (
        "samplerpool.rl-operator.io/live-main scaled from 5 to 2\n"
    )


def test_an_evicted_sampler_is_gone(world: World, run: Run) -> None:
    written = pod("drained-main-x-1", "live", "engine", RL_POOL="live-main")
    world.apiserver.kubectl("apply", "-f", "-", stdin=json.dumps(written))
    done = run("drain", "live", "--pod", "drained-main-x-1", kubeconfig=world.admin)
    assert (done.code, done.out) == (0, "pod/drained-main-x-1 evicted\n")
    names = world.apiserver.get("pod", "-n", NAMESPACE)["items"]
    assert "drained-main-x-1" not in [each["metadata"]["name"] for each in names]


def test_pods_of_a_node_are_drained_also_where_one_goes_by_itself(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"drained-{letter}" for letter in "ab"]
    for name in names:
        manifest = pod(name, "live", "engine", RL_POOL="live-main")
        manifest["spec"]["nodeName"] = "node-1"
        world.apiserver.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    asked = KubeCluster.pods_of

    def pods_of(cluster: KubeCluster, namespace: str, job: str) -> list[PodView]:
        listed = asked(cluster, namespace, job)
        gone = ("delete", "pod", names[0], "-n", NAMESPACE, "--force", "--grace-period=0")
        world.apiserver.kubectl(*gone)
        return listed

    monkeypatch.setattr(KubeCluster, "pods_of", pods_of)
    done = run("drain", "live", "--node", "node-1", kubeconfig=world.admin)
    assert (done.code, done.err) == (0, "")
    assert done.out == "pod/drained-a is gone already\npod/drained-b evicted\n"
    gone = ("delete", "pod", names[1], "-n", NAMESPACE, "--force", "--grace-period=0")
    world.apiserver.kubectl(*gone, check=False)


def test_a_disruption_budget_is_respected(world: World, run: Run) -> None:
    written = pod("kept-main-x-1", "live", "engine", RL_POOL="live-main")
    written["metadata"]["labels"] = {"kept": "yes"}
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "kept", "namespace": NAMESPACE},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"kept": "yes"}}},
    }
    for each in (budget, written):
        world.apiserver.kubectl("apply", "-f", "-", stdin=json.dumps(each))
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    put_status(world.apiserver, "pod", "kept-main-x-1", ready)
    command = ("drain", "live", "--pod", "kept-main-x-1", "--timeout", "0")
    done = run(*command, kubeconfig=world.admin)
    world.apiserver.kubectl("-n", NAMESPACE, "delete", "pod", "kept-main-x-1", "--force")
    assert done.code == 7
    assert done.err.startswith("error: the disruption budget did not admit the eviction")
