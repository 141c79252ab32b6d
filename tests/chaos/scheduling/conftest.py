"""The cluster with Kueue's schemas and an operator that may use them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from rl_console.demo.settings import DemoSettings
from tests.cluster.chart import switch
from tests.cluster.lab import Lab
from tests.kube import kueue

FLAVOR = "linux"


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
    switch(installed, "kueue.enabled", on=True)
    yield lab
    switch(installed, "kueue.enabled", on=False)
    lab.delete("crd", *names)
