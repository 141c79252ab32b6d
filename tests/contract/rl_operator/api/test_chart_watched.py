"""Namespaces that leave ``watchNamespaces``, against a real API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rl_operator.kube.names import FINALIZER
from tests.contract.rl_operator.api.test_chart import render
from tests.contract.rl_operator.world import World
from tests.examples import first
from tests.samples.manifests import documents

RELEASES_NAMESPACE = "default"
"""That of ``render``."""
OTHERS = '--set-json=watchNamespaces=["kube-public"]'


@contextmanager
def installed(world: World, *namespaces: str) -> Iterator[None]:
    """The release's operator, which watches these namespaces, or all."""
    done = render(world, more=[f"--set-json=watchNamespaces={json.dumps(namespaces)}"])
    assert done.returncode == 0, done.stderr
    (operator,) = (
        each
        for each in documents(done.stdout)
        if (each["kind"], each["metadata"]["name"]) == ("Deployment", "rl-operator")
    )
    world.apiserver.kubectl("apply", "-f", "-", stdin=json.dumps(operator))
    try:
        yield
    finally:
        place = ("-n", RELEASES_NAMESPACE)
        world.apiserver.kubectl(*place, "delete", "deployment", "rl-operator")


def bind(world: World, namespace: str, name: str, subject: str) -> None:
    command = ("-n", namespace, "create", "rolebinding", name, "--clusterrole=cluster-admin")
    world.apiserver.kubectl(*command, subject)


def end(world: World) -> None:
    fields = {"type": "Complete", "status": "True", "reason": "R", "observedGeneration": 1}
    condition = {**fields, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    world.set_status("rljob", "job", {"conditions": [condition]})


def finalizers(world: World, *names: str) -> None:
    patch = json.dumps({"metadata": {"finalizers": names}})
    world.apiserver.kubectl(
        "-n", world.namespace, "patch", "rljob", "job", "--type=merge", "-p", patch
    )


def refusal(world: World) -> str:
    """What Helm says to an upgrade that watches other namespaces."""
    return render(world, more=[OTHERS]).stderr


@pytest.mark.parametrize("watches_all", first(1, [False, True]))
def test_a_namespace_leaves_after_its_jobs_no_longer_need_the_operator(
    world: World, watches_all: bool
) -> None:
    world.make_job()
    left_out = f"watchNamespaces leaves out {world.namespace}, where RLJob job "
    assert refusal(world) == ""  # nothing is installed
    with installed(world, *([] if watches_all else [world.namespace])):
        assert f"{left_out}has not ended" in refusal(world)
        kept = f'--set-json=watchNamespaces=["{world.namespace}"]'
        assert render(world, more=[kept]).stderr == ""
        end(world)
        assert refusal(world) == ""
        finalizers(world, FINALIZER)
        assert f"{left_out}keeps samplers that hold the quota of a queue" in refusal(world)
        world.make_job(lifecycle={"dataPolicy": "Delete"})
        assert f"{left_out}has data that are deleted with it" in refusal(world)
        world.apiserver.kubectl("-n", world.namespace, "delete", "rljob", "job", "--wait=false")
        assert f"{left_out}is being deleted" in refusal(world)
        finalizers(world)
        assert refusal(world) == ""


@pytest.mark.soak
def test_jobs_that_others_reconcile_do_not_matter(world: World) -> None:
    world.make_job(managedBy="kueue.x-k8s.io/multikueue")
    with installed(world):
        assert refusal(world) == ""
        world.make_job("own")
        assert "where RLJob own has not ended" in refusal(world)
        bind(world, world.namespace, "rl-operator", "--serviceaccount=b:rl-operator")
        assert refusal(world) == ""  # the release in namespace b watches it
    with installed(world, "kube-system"):
        assert refusal(world) == ""


def test_an_upgrade_that_takes_no_namespace_out_reads_no_jobs(world: World) -> None:
    """Whoever runs it may have no right to list them."""
    user = f"{world.namespace}-deployer"
    bind(world, RELEASES_NAMESPACE, user, f"--user={user}")
    with installed(world, "kube-public"):
        done = render(
            world, more=[OTHERS, f"--kube-as-user={user}", "--set=stores.embedded.enabled=false"]
        )
    assert done.stderr == ""
