"""The cluster with Kueue's schemas and an operator that may use them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from rl_console import tools
from rl_console.demo.settings import RELEASE, RELEASE_NAMESPACE, DemoSettings
from tests import kueue
from tests.cluster.lab import Lab

HELM_SECONDS = 300.0
FLAVOR = "linux"


def upgrade(settings: DemoSettings, *, enabled: bool) -> None:
    """Give the operator its rights to Workloads, or take them away."""
    command = settings.tools.helm_command(
        "upgrade",
        RELEASE,
        str(settings.checkout / "charts" / RELEASE),
        "--reuse-values",
        "--namespace",
        RELEASE_NAMESPACE,
        "--set",
        f"kueue.enabled={json.dumps(enabled)}",
        "--wait",
        "--timeout",
        f"{HELM_SECONDS:.0f}s",
    )
    tools.run(command, seconds=HELM_SECONDS + 20, doing=f"kueue.enabled = {enabled}")


@pytest.fixture(scope="module")
def queue(lab: Lab, installed: DemoSettings) -> Iterator[Lab]:
    """A cluster with a queue, in which the test decides."""
    items = kueue.definitions()
    names = [item["metadata"]["name"] for item in items]
    crds = {"apiVersion": "v1", "kind": "List", "items": items}
    lab.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(crds))
    for name in names:
        lab.await_kind(name)
    flavor = kueue.flavor(FLAVOR)
    flavor["spec"]["nodeLabels"] = {"kubernetes.io/os": "linux"}
    lab.apply(flavor)
    upgrade(installed, enabled=True)
    yield lab
    upgrade(installed, enabled=False)
    lab.delete("crd", *names)
