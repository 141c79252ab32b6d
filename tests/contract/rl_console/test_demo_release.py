"""The demo and Helm releases of its name, with a real helm and API server."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rl_console import tools
from rl_console.cluster.kube import Cluster
from rl_console.demo import install
from rl_console.demo.release import read_own
from rl_console.demo.settings import IMAGES, RELEASE, RELEASE_NAMESPACE, DemoSettings
from rl_console.demo.stages import Stages
from rl_console.errors import StageFailedError
from rl_console.tools import Tools
from tests.contract.rl_console.world import World
from tests.servers import binary

ROOT = Path(__file__).resolve().parents[3]
PRODUCTION = {
    "image": {"registry": "registry.example/rl"},
    "watchNamespaces": ["team-a", "team-b"],
    "kueue": {"enabled": True},
    "imagePullSecrets": [{"name": "pull"}],
    "operator": {"replicas": 2},
}


@pytest.fixture
def settings(world: World, tmp_path: Path) -> Iterator[DemoSettings]:
    """Of a demo on a cluster whose namespace of releases has labels of its owner's."""
    chosen = Tools(kubectl=binary("kubectl"), helm=binary("helm"), kubeconfig=world.admin)
    install.create_namespace(chosen, RELEASE_NAMESPACE)
    label = "pod-security.kubernetes.io/enforce=privileged"
    world.apiserver.kubectl("label", "--overwrite", "namespace", RELEASE_NAMESPACE, label)
    yield DemoSettings(
        tools=chosen,
        checkout=ROOT,
        images={image: f"r/{image}:1" for image in IMAGES},
        cache=tmp_path / "cache",
        out=tmp_path / "out",
    )
    tools.run(
        chosen.helm_command("uninstall", RELEASE, "-n", RELEASE_NAMESPACE, "--ignore-not-found")
    )


def put_release(settings: DemoSettings, folder: Path, values: dict[str, Any]) -> None:
    """A release of the demo's name; what it installs does not matter, only its values."""
    chart = folder / RELEASE
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text(f"{{apiVersion: v2, name: {RELEASE}, version: 0.0.1}}")
    (folder / "values.json").write_text(json.dumps(values))
    tools.run(
        settings.tools.helm_command(
            *("install", RELEASE, str(chart), "-n", RELEASE_NAMESPACE),
            *("--values", str(folder / "values.json")),
        )
    )


def labels(world: World, namespace: str) -> dict[str, str]:
    written = world.apiserver.kubectl("get", "namespace", namespace, "-o", "json")
    written_labels: dict[str, str] = json.loads(written.stdout)["metadata"]["labels"]
    return written_labels


def test_the_demo_leaves_the_release_of_somebody_else_alone(
    settings: DemoSettings, world: World, tmp_path: Path
) -> None:
    put_release(settings, tmp_path, PRODUCTION)
    cluster = Cluster.connect(world.admin, context=None)
    stages = Stages(Console(file=io.StringIO()), started=time.monotonic())
    with pytest.raises(StageFailedError, match="release rl-operator in namespace rl-system") as no:
        install.install(settings, cluster, stages, namespaces=["rl-untouched"])
    for value in ("image.registry", "imagePullSecrets", "kueue.enabled", "watchNamespaces"):
        assert value in no.value.condition
    assert "helm uninstall rl-operator --namespace rl-system" in no.value.remedy
    history = settings.tools.helm_command("history", RELEASE, "-n", RELEASE_NAMESPACE, "-o", "json")
    assert [each["revision"] for each in json.loads(tools.run(history))] == [1]
    assert labels(world, RELEASE_NAMESPACE)["pod-security.kubernetes.io/enforce"] == "privileged"
    missing = ("get", "namespace", "rl-untouched", "--ignore-not-found", "-o", "name")
    assert world.apiserver.kubectl(*missing).stdout == ""


def test_a_second_demo_knows_the_release_of_the_first(
    settings: DemoSettings, tmp_path: Path
) -> None:
    assert read_own(settings) == {}
    first = install.chart_values(settings, namespaces=["rl-demo"], current={})
    put_release(settings, tmp_path, first)
    assert read_own(settings)["config"] == first


def test_a_namespace_is_made_once_and_keeps_its_owners_labels(
    settings: DemoSettings, world: World
) -> None:
    for name in (RELEASE_NAMESPACE, "rl-new", "rl-new"):
        install.create_namespace(settings.tools, name)
    assert labels(world, RELEASE_NAMESPACE)["pod-security.kubernetes.io/enforce"] == "privileged"
    assert labels(world, "rl-new")["pod-security.kubernetes.io/enforce"] == "restricted"
