"""Pods that the console makes for models: a restricted namespace admits them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rl_console.actions.models.choice import Choice
from rl_console.actions.models.endpoint import Endpoint
from rl_console.actions.models.working import job_manifest
from rl_console.cluster.kube import Cluster
from tests.contract.rl_console.conftest import Run
from tests.contract.rl_console.world import NAMESPACE, World
from tests.kube.apiserver import ApiServer

RESTRICTED = "restricted-models"


@pytest.fixture(scope="module")
def restricted(apiserver: ApiServer) -> str:
    """A namespace that admits pods of the restricted standard alone."""
    apiserver.kubectl("create", "namespace", RESTRICTED)
    label = "pod-security.kubernetes.io/enforce=restricted"
    apiserver.kubectl("label", "namespace", RESTRICTED, label)
    return RESTRICTED


def admit(apiserver: ApiServer, template: dict[str, Any], namespace: str) -> None:
    """Ask the API server to take a pod of this template."""
    metadata = {"name": "model", "namespace": namespace, **template["metadata"]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    apiserver.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))


@pytest.mark.parametrize("job", ["live", "finished"])
def test_a_restricted_namespace_admits_the_pods_of_jobs(
    world: World, restricted: str, job: str
) -> None:
    choice = Choice.of(Cluster.connect(world.admin, context=None), NAMESPACE, job, None)
    manifest = job_manifest(choice, choice.images(), verb="x", arguments=["hand-out"], seconds=9)
    admit(world.apiserver, manifest["spec"]["template"], restricted)
    endpoint = Endpoint(choice=choice, images=choice.images(), name="x", api_key_secret="keys")
    admit(world.apiserver, endpoint.manifests()[-1]["spec"]["template"], restricted)


def test_an_endpoint_is_made_changed_and_removed_and_nothing_else_is_touched(
    world: World, run: Run
) -> None:
    kubectl = world.apiserver.kubectl
    began = run("serve", "finished", "--timeout", "0", kubeconfig=world.admin)
    assert (began.code, "http://finished-serve.console.svc/v1" in began.out) == (0, True)
    changed = run("serve", "finished", "7", "--timeout", "0", kubeconfig=world.admin)
    assert "version 7 of finished" in changed.out
    shown = kubectl("-n", NAMESPACE, "get", "deployment", "finished-serve", "-o", "json").stdout
    (stage,) = json.loads(shown)["spec"]["template"]["spec"]["initContainers"]
    assert stage["args"] == ["stage", "--version", "7"]
    other = run("serve", "live", "--name", "finished-serve", kubeconfig=world.admin)
    assert (other.code, "is not of an endpoint of live" in other.err) == (6, True)
    stopped = run("serve", "live", "--name", "finished-serve", "--stop", kubeconfig=world.admin)
    assert stopped.code == 6
    stopped = run("serve", "finished", "--stop", kubeconfig=world.admin)
    assert stopped.out.splitlines() == [
        "deployment/finished-serve deleted",
        "service/finished-serve deleted",
        "networkpolicy/finished-serve deleted",
    ]
    assert run("serve", "finished", "--stop", kubeconfig=world.admin).code == 3


def test_what_a_dry_run_prints_is_taken_by_the_api_server(world: World, run: Run) -> None:
    printed = run("serve", "finished", "--dry-run", "--keep", kubeconfig=world.admin)
    world.apiserver.kubectl("create", "--dry-run=server", "-f", "-", stdin=printed.out)
    assert printed.code == 0
