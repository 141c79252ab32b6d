from pathlib import Path

import pytest
from kubernetes.client import ApiClient

from rl_console.cluster.api import Api
from rl_console.cluster.kube import Cluster
from rl_console.demo.install import chart_values, namespace_manifest, remedy
from rl_console.demo.settings import DemoSettings
from rl_console.tools import Tools


def settings() -> DemoSettings:
    return DemoSettings(
        tools=Tools(),
        checkout=Path(),
        images={"operator": "r/o:1"},
        cache=Path(),
        out=Path(),
        storage_class="local",
    )


@pytest.mark.parametrize(
    ("current", "served"),
    [
        ({}, ["rl-demo"]),
        ({"stores": {"namespaces": ["rl-test", "rl-demo"]}}, ["rl-demo", "rl-test"]),
    ],
)
def test_namespaces_of_an_earlier_installation_stay(
    current: dict[str, dict[str, list[str]]], served: list[str]
) -> None:
    values = chart_values(settings(), namespaces=["rl-demo"], current=current)
    assert values["stores"]["namespaces"] == served
    assert values["stores"]["storageClass"] == "local"
    assert values["images"] == {"operator": "r/o:1"}


def test_the_remedy_is_of_the_demo_s_own_cluster() -> None:
    cluster = Cluster(Api(ApiClient(), options=["--context", "kind-demo"]))
    assert "`kubectl get pods -n rl-system --context kind-demo`" in remedy(cluster)


def test_namespaces_enforce_restricted_pods() -> None:
    labels = namespace_manifest("lab")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
