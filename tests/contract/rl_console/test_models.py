"""Pods that the console makes for models: a restricted namespace admits them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rl_console.actions.models.choice import Choice
from rl_console.actions.models.working import job_manifest
from rl_console.kube import Cluster
from tests.apiserver import ApiServer
from tests.contract.rl_console.world import NAMESPACE, World

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
