"""Kubernetes' own HPA controller sizes a pool by the example's manifest, through ``/scale``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rl_operator.kube import kinds
from rl_operator.kube.kinds import Key
from tests.contract.rl_operator.world import World
from tests.kube import metrics_adapter
from tests.kube.apiserver import controller_manager
from tests.kube.metrics_adapter import PodMetrics
from tests.waiting import until

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "autoscaling" / "hpa.yaml"
JOB, POOL = "arithmetic", "arithmetic-main"
TARGET = 12
"""Groups for each pod, as the example says."""


@pytest.fixture
def hpa() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    return loaded


@pytest.fixture
def measured(world: World, hpa: dict[str, Any], tmp_path: Path) -> Iterator[PodMetrics]:
    """The metric that the example names, and the controller that reads it."""
    (wanted,) = hpa["spec"]["metrics"]
    metrics = PodMetrics(wanted["pods"]["metric"]["name"])
    manager = controller_manager(
        world.apiserver,
        tmp_path,
        "--controllers=horizontal-pod-autoscaler-controller",
        "--horizontal-pod-autoscaler-sync-period=1s",
    )
    with metrics_adapter.served(world.apiserver, metrics, tmp_path / "tls"), manager:
        yield metrics


def apply(world: World, manifest: dict[str, Any]) -> None:
    text = json.dumps(manifest)
    world.apiserver.kubectl("-n", world.namespace, "apply", "-f", "-", stdin=text)


def size(world: World) -> int:
    """What /scale says."""
    (pool,) = world.objects(kinds.SAMPLER_POOL)
    return int(pool["spec"]["replicas"])


def await_size(world: World, wanted: int) -> None:
    def seen() -> object:
        return world.apiserver.get("-n", world.namespace, "hpa", POOL)["status"]

    until(lambda: size(world) == wanted, what=f"{wanted} samplers", seen=seen)


def selector(world: World) -> set[str]:
    """By which /scale says that the pool's pods are found."""
    path = f"{kinds.SAMPLER_POOL.path(world.namespace, POOL)}/scale"
    scale = json.loads(world.apiserver.kubectl("get", "--raw", path).stdout)
    return set(scale["status"]["selector"].split(","))


def follow(world: World, job: Key, metrics: PodMetrics, *, groups: int) -> int:
    """The operator and the Deployment's controller do what /scale says; each pod has groups."""
    run = str(world.settle(job)["runId"])
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    pods = [f"{POOL}-x-{number}" for number in range(int(deployment["spec"]["replicas"]))]
    present = {pod["metadata"]["name"] for pod in world.objects(kinds.POD)}
    for name in [pod for pod in pods if pod not in present]:
        world.start_pod(name, of=deployment)
        world.register(run, name)
    metrics.values = dict.fromkeys(pods, groups)
    return len(pods)


def test_pool_grows_and_shrinks_with_its_autoscaler(
    world: World, measured: PodMetrics, hpa: dict[str, Any]
) -> None:
    world.make_secret()
    world.upload_inputs()
    job = world.make_job(JOB)
    world.settle(job)
    assert follow(world, job, measured, groups=2 * TARGET) == 2
    apply(world, hpa)
    await_size(world, 4)
    assert follow(world, job, measured, groups=2 * TARGET) == 4
    await_size(world, hpa["spec"]["maxReplicas"])
    assert follow(world, job, measured, groups=0) == 8
    assert {frozenset(selector.split(",")) for selector in measured.selectors} == {
        frozenset(selector(world))
    }
    (pool,) = world.objects(kinds.SAMPLER_POOL)
    assert not pool["status"].get("lastScale")  # the operator itself has scaled nothing
    hpa["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] = 0
    apply(world, hpa)
    await_size(world, hpa["spec"]["minReplicas"])
    world.settle(job)
    assert size(world) == 1  # and nobody sets it back
