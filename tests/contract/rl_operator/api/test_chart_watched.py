"""Namespaces that leave ``watchNamespaces``, against a real API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rl_operator.kube.names import FINALIZER
from tests.contract.rl_operator.api.test_chart import render
from tests.contract.rl_operator.world import World

RELEASES_NAMESPACE = "default"
"""That of ``render``."""
OTHERS = '--set-json=watchNamespaces=["kube-public"]'


@contextmanager
def bound(world: World, kind: str, name: str, operators_namespace: str) -> Iterator[None]:
    """A binding of an operator, as its chart makes it."""
    account = f"--serviceaccount={operators_namespace}:rl-operator"
    place = ("-n", world.namespace)
    world.apiserver.kubectl(*place, "create", kind, name, "--clusterrole=view", account)
    try:
        yield
    finally:
        world.apiserver.kubectl(*place, "delete", kind, name)


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


@pytest.mark.parametrize(
    ("kind", "name"),
    [("rolebinding", "rl-operator"), ("clusterrolebinding", "rl-operator-jobs.default")],
)
def test_a_namespace_leaves_after_its_jobs_no_longer_need_the_operator(
    world: World, kind: str, name: str
) -> None:
    world.make_job()
    left_out = f"watchNamespaces leaves out {world.namespace}, where RLJob job "
    assert refusal(world) == ""  # no release watches the namespace
    with bound(world, kind, name, RELEASES_NAMESPACE):
        assert f"{left_out}has not ended" in refusal(world)
        kept = f'--set-json=watchNamespaces=["{world.namespace}"]'
        assert render(world, more=[kept]).stderr == ""
        end(world)
        assert refusal(world) == ""
        finalizers(world, FINALIZER)
        assert f"{left_out}has data that are deleted with it" in refusal(world)
        world.apiserver.kubectl("-n", world.namespace, "delete", "rljob", "job", "--wait=false")
        assert f"{left_out}is being deleted" in refusal(world)
        finalizers(world)
        assert refusal(world) == ""


def test_jobs_of_another_release_do_not_matter(world: World) -> None:
    world.make_job()
    with bound(world, "rolebinding", "rl-operator", "team-b"):
        assert refusal(world) == ""
