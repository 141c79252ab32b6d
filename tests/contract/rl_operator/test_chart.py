"""The chart against a real API server: an upgrade takes no running job's stores away."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence

import pytest
import yaml

from rl_operator import names
from rl_operator.desired.metadata import labels
from rl_operator.desired.shared_engine import Seat
from tests.contract.rl_operator.world import World
from tests.servers import ROOT, binary
from tests.waiting import HUNG_SECONDS

IMAGES = ("operator", "trainer", "sampler", "engine", "store", "minio")


def render(
    world: World, *namespaces: str, more: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """What an upgrade with these ``stores.namespaces`` would apply, or why it refuses.

    The release is named after the world's namespace: other tests' jobs are of other releases.
    """
    values = [f"--set=images.{name}={name}:1" for name in IMAGES]
    listed = f"--set-json=stores.namespaces={json.dumps(namespaces)}"
    return helm(
        world,
        "template",
        world.namespace,
        "--kube-version",
        "1.34.0",
        "--api-versions",
        "rl-operator.io/v1alpha1/RLJob",
        *values,
        listed,
        *more,
    )


def helm(world: World, verb: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run helm up to the point where it would write, with the API server's answers to look-ups."""
    return subprocess.run(
        [
            binary("helm"), verb, *options, str(ROOT / "charts/rl-operator"),
            "--namespace", "default", "--dry-run=server", "--kubeconfig",
            str(world.apiserver.kubeconfig),
        ],
        capture_output=True, text=True, timeout=HUNG_SECONDS, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("own", "ended", "refused"),
    [(True, "", True), (False, "", False), (True, "Complete", False)],
)
def test_a_namespace_with_running_jobs_is_not_left_out(
    world: World, own: bool, ended: str, refused: bool
) -> None:
    world.make_secret()
    release = world.namespace if own else "other"
    world.apiserver.kubectl(
        "-n", world.namespace, "label", "secret", "rl-operator-stores",
        f"app.kubernetes.io/instance={release}",
    )  # fmt: skip
    job = world.make_job()
    if ended:
        said = {"type": ended, "status": "True", "reason": "R", "observedGeneration": 1}
        condition = {**said, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        world.set_status("rljob", job.name, {"conditions": [condition]})
    assert render(world, world.namespace).returncode == 0
    done = render(world)
    assert (done.returncode != 0) is refused
    assert (f"leaves out {world.namespace}, where RLJob job" in done.stderr) is refused


def test_a_secret_outlives_its_place_in_the_list(world: World) -> None:
    rendered = yaml.safe_load_all(render(world, world.namespace).stdout)
    kept = [
        one["metadata"]["annotations"]["helm.sh/resource-policy"]
        for one in rendered
        if one and one["kind"] == "Secret" and one["metadata"]["name"] == "rl-operator-stores"
    ]
    assert kept == ["keep", "keep"]  # of the namespace and of the release's own


def test_helm_itself_knows_that_there_are_jobs(world: World) -> None:
    world.make_secret()
    world.apiserver.kubectl(
        "-n", world.namespace, "label", "secret", "rl-operator-stores",
        f"app.kubernetes.io/instance={world.namespace}",
    )  # fmt: skip
    world.make_job()
    values = [f"--set=images.{name}={name}:1" for name in IMAGES]
    done = helm(world, "upgrade", "--install", world.namespace, *values)
    assert f"leaves out {world.namespace}, where RLJob job" in done.stderr


def test_the_pod_monitor_finds_the_pods_of_runs(world: World) -> None:
    rendered = render(world, more=["--set=podMonitor.enabled=true"])
    assert rendered.returncode == 0, rendered.stderr
    (monitor,) = [
        one for one in yaml.safe_load_all(rendered.stdout) if one and one["kind"] == "PodMonitor"
    ]
    selector = monitor["spec"]["selector"]
    (component,) = selector["matchExpressions"]
    assert component["key"] == names.COMPONENT_LABEL
    for one in ("trainer", "sampler"):
        pod = labels(job="job", run="run", component=one)
        assert selector["matchLabels"].items() <= pod.items()
        assert pod[component["key"]] in component["values"]
    endpoint, *of_several = monitor["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("http", "/metrics")
    seats = [Seat(job="job", number=number, runs=8) for number in range(8)]
    assert [one["port"] for one in of_several] == [one.named("http") for one in seats]
