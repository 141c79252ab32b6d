"""One cluster and one installation for all tests of the tier; `make cluster` starts it."""

from __future__ import annotations

import fcntl
import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from rl_console.cluster.kube import Cluster
from rl_console.demo import inputs, install
from rl_console.demo.settings import DemoSettings, read_images
from rl_console.demo.stages import Stages
from rl_console.errors import StageFailedError
from rl_console.stores import bucket
from rl_console.tools import Tools
from tests.cluster.lab import Lab
from tests.cluster.waiting import until

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "rl-test"
STORAGE_CLASS = "local"


def rl_local(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "rl_local", *arguments],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": "local"},
        cwd=ROOT,
    )
    return done.stdout.strip()


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> DemoSettings:
    images = Path(os.environ.get("RL_IMAGES", ROOT / "out/images.json"))
    if not images.exists():
        pytest.fail(f"{images} is missing: run the tests of the cluster by `make cluster`")
    cache = os.environ.get("RL_CACHE") or Path.home() / ".cache/rl-operator"
    return DemoSettings(
        tools=Tools(
            kubectl=rl_local("bin", "kubectl"),
            helm=rl_local("bin", "helm"),
            kubeconfig=Path(rl_local("kubeconfig")),
        ),
        checkout=ROOT,
        images=read_images(images),
        cache=Path(cache) / "demo",
        out=tmp_path_factory.mktemp("out"),
        storage_class=STORAGE_CLASS,
    )


@pytest.fixture(scope="session")
def cluster(settings: DemoSettings) -> Cluster:
    return Cluster.connect(settings.tools.kubeconfig, context=settings.tools.context)


@pytest.fixture(scope="session")
def installed(settings: DemoSettings, cluster: Cluster) -> DemoSettings:
    """The chart is installed, and the bucket holds the example's model and data."""
    stages = Stages(Console(file=io.StringIO()), started=time.monotonic())
    wanted = inputs.paths(settings)
    try:
        with inputs.start_model(settings, wanted) as model:
            install.install(settings, cluster, stages, namespaces=[NAMESPACE])
            inputs.finish(settings, wanted, model, stages)
    except StageFailedError as failure:
        pytest.fail("\n".join([failure.condition, *failure.log]))
    with bucket(cluster, settings.tools, NAMESPACE) as objects:
        inputs.upload(objects, wanted)
    return settings


@pytest.fixture(scope="session")
def alone(settings: DemoSettings) -> Iterator[None]:
    """No other session uses the namespace; the kernel frees the lock however one ends."""
    settings.cache.mkdir(parents=True, exist_ok=True)
    with (settings.cache / "cluster-tests.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pytest.fail("another session runs the cluster's tests; wait until it has ended")
        yield


@pytest.fixture(scope="session")
def lab(alone: None, installed: DemoSettings, cluster: Cluster) -> Iterator[Lab]:
    """The tests' namespace, without jobs of an earlier session."""
    lab = Lab(cluster=cluster, tools=installed.tools, namespace=NAMESPACE)
    lab.delete("rljobs.rl-operator.io", "--all")
    # Pods of a job that is gone would be taken for those of the next one of its name.
    until(
        lambda: not any(pod.job for pod in cluster.pods(NAMESPACE)), what="earlier pods to be gone"
    )
    yield lab
    lab.delete("rljobs.rl-operator.io", "--all")
