"""`doctor` against a real API server: each finding that is not good has its remedy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from tests.contract.rl_console.conftest import Done, Run
from tests.contract.rl_console.world import NAMESPACE, World

HIDDEN = "do-not-show-me"
OPERATOR_LABELS = {
    "app.kubernetes.io/part-of": "rl-operator",
    "app.kubernetes.io/component": "operator",
}


def findings(done: Done) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in json.loads(done.out)["items"]}


def put_secret(world: World, values: dict[str, str]) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "rl-operator-stores", "namespace": NAMESPACE},
        "stringData": values,
    }
    world.apiserver.kubectl("apply", "-f", "-", stdin=json.dumps(secret))


@contextmanager
def a_pod(
    world: World, labels: dict[str, str], status: dict[str, Any], arguments: Sequence[str] = ()
) -> Iterator[None]:
    """A pod with this status, which the kubelet would write."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "the-pod", "namespace": NAMESPACE, "labels": labels},
        "spec": {"containers": [{"name": "only", "image": "o:1", "args": list(arguments)}]},
    }
    kubectl = world.apiserver.kubectl
    kubectl("create", "-f", "-", stdin=json.dumps(pod))
    named = ("-n", NAMESPACE, "pod", "the-pod")
    try:
        kubectl("patch", *named, "--subresource=status", "-p", json.dumps({"status": status}))
        yield
    finally:
        kubectl("delete", *named, "--force", "--grace-period=0")


def operator_pod(world: World, arguments: list[str]) -> AbstractContextManager[None]:
    """A pod as the chart makes it, which says that it is ready."""
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    return a_pod(world, OPERATOR_LABELS, ready, arguments)


def test_each_fault_has_a_remedy(world: World, run: Run) -> None:
    done = run("doctor", "-o", "json", kubeconfig=world.admin)
    given = findings(done)
    assert done.code == 1
    good = {"cluster", "definitions", "kueue", "agent-sandbox", "namespace", "reader", "rights"}
    assert {name for name, each in given.items() if each["state"] == "ok"} >= good
    assert given["secret"]["state"] == "fault"
    assert given["clock"]["state"] == "warning"
    assert given["bucket"]["state"] == given["state store"]["state"] == "unknown"
    assert all(each["remedy"] for each in given.values() if each["state"] != "ok")


def test_a_malformed_secret_is_named_and_not_shown(world: World, run: Run) -> None:
    put_secret(world, {"mongoUri": HIDDEN, "s3SecretKey": HIDDEN})
    done = run("doctor", "-o", "json", kubeconfig=world.admin)
    world.apiserver.kubectl("-n", NAMESPACE, "delete", "secret", "rl-operator-stores")
    assert findings(done)["secret"]["state"] == "fault"
    assert "s3Endpoint" in findings(done)["secret"]["detail"]
    assert HIDDEN not in done.out + done.err


def test_what_the_user_may_not_see_is_said(world: World, run: Run) -> None:
    given = findings(run("doctor", "-o", "json", kubeconfig=world.nobody))
    assert given["cluster"]["state"] == given["definitions"]["state"] == "ok"
    for name in ("operator", "gpus", "secret"):
        assert (given[name]["state"], given[name]["detail"]) == (
            "unknown",
            "you have no right to see it",
        )
    assert given["rights"]["detail"].startswith("you may not list jobs, create jobs")


def test_a_namespace_that_does_not_exist_is_a_fault(world: World, run: Run) -> None:
    given = findings(run("doctor", "-n", "nowhere", "-o", "json", kubeconfig=world.admin))
    remedy = f"kubectl create namespace nowhere --kubeconfig {world.admin}"
    assert given["namespace"]["remedy"] == remedy


def test_without_a_cluster_nothing_else_is_examined(world: World, run: Run) -> None:
    done = run("doctor", kubeconfig=world.unreachable)
    assert (done.code, done.out) == (5, "")


@pytest.mark.parametrize(
    ("watched", "state"),
    [((), "ok"), (("team-b", NAMESPACE), "ok"), (("team-a", "team-b"), "fault")],
)
def test_an_operator_that_does_not_watch_the_namespace_is_a_fault(
    world: World, run: Run, watched: tuple[str, ...], state: str
) -> None:
    arguments = ["--namespace=rl-system", *(f"--watch-namespace={each}" for each in watched)]
    with operator_pod(world, arguments):
        given = findings(run("doctor", "-o", "json", kubeconfig=world.admin))["operator"]
    assert given["state"] == state
    assert given["detail"].startswith(f"1 ready in {NAMESPACE}")
    if state == "fault":
        assert f"watches team-a, team-b, and not {NAMESPACE}" in given["detail"]
        assert "watchNamespaces" in given["remedy"]


@pytest.mark.parametrize(
    ("phase", "state", "detail"),
    [("Pending", "fault", "the-pod is not ready"), ("Succeeded", "ok", "none runs")],
)
def test_a_reader_that_has_ended_by_itself_is_no_fault(
    world: World, run: Run, phase: str, state: str, detail: str
) -> None:
    with a_pod(world, {"rl-operator.io/component": "reader"}, {"phase": phase}):
        given = findings(run("doctor", "-o", "json", kubeconfig=world.admin))
    assert given["reader"]["state"] == state
    assert detail in given["reader"]["detail"]
    if state == "fault":
        options = f"-n {NAMESPACE} --kubeconfig {world.admin}"
        assert given["reader"]["remedy"] == f"kubectl describe pod the-pod {options}"


def test_the_log_of_an_operator_that_is_not_ready_is_of_the_same_cluster(
    world: World, run: Run
) -> None:
    with a_pod(world, OPERATOR_LABELS, {"phase": "Running"}):
        given = findings(run("doctor", "-o", "json", kubeconfig=world.admin))["operator"]
    options = f"-n {NAMESPACE} --kubeconfig {world.admin}"
    assert given["remedy"] == f"kubectl logs the-pod {options}"


@contextmanager
def local_queues(world: World, version: str) -> Iterator[None]:
    """A Kueue that serves one version alone, and has a queue."""
    names = {"plural": "localqueues", "kind": "LocalQueue", "listKind": "LocalQueueList"}
    schema = {"openAPIV3Schema": {"type": "object"}}
    served = {"name": version, "served": True, "storage": True, "schema": schema}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "localqueues.kueue.x-k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": "kueue.x-k8s.io",
            "names": names,
            "scope": "Namespaced",
            "versions": [served],
        },
    }
    queue = {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": "LocalQueue",
        "metadata": {"name": "team", "namespace": NAMESPACE},
    }
    kubectl, named = world.apiserver.kubectl, "crd/localqueues.kueue.x-k8s.io"
    kubectl("create", "-f", "-", stdin=json.dumps(definition))
    try:
        kubectl("wait", named, "--for=condition=Established")
        kubectl("create", "-f", "-", stdin=json.dumps(queue))
        yield
    finally:
        kubectl("delete", named)


@pytest.mark.parametrize(
    ("version", "state", "detail"),
    [
        ("v1beta2", "ok", f"queues of {NAMESPACE}: team"),
        ("v1beta1", "fault", "it does not serve kueue.x-k8s.io/v1beta2"),
    ],
)
def test_queues_are_read_in_the_version_that_the_operator_needs(
    world: World, run: Run, version: str, state: str, detail: str
) -> None:
    with local_queues(world, version):
        given = findings(run("doctor", "-o", "json", kubeconfig=world.admin))["kueue"]
    assert (given["state"], given["detail"]) == (state, detail)
