"""A separate control plane with fake nodes: all parts but the kubelets are real.

kwok plays the kubelets: a pod is Ready ``READY_MILLISECONDS`` after it was bound to a node.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from benchmarks.operator.lab.api import MERGE, Api
from rl_local import versions
from rl_local.build import binaries
from tests.kube import apiserver
from tests.kube.apiserver import ApiServer
from tests.servers import ROOT, SELDOM, binary
from tests.waiting import until

NODES = 50
READY_MILLISECONDS = 500
PYTORCHJOB_CRD = "manifests/base/crds/kubeflow.org_pytorchjobs.yaml"
KWOK = "sigs.k8s.io/kwok"
CONTROLLERS = (
    "deployment-controller,replicaset-controller,disruption-controller,"
    "garbage-collector-controller,namespace-controller"
)
RATES = ("--kube-api-qps", "1000", "--kube-api-burst", "2000")
"""With the default limits a benchmark would only measure these limits."""
PREFERRED = ("nice", "-n", "-10") if os.geteuid() == 0 else ()
"""Before kwok's command: kubelets have cores of their own. Kwok was too slow for its watch of pods:
592,000 events of pods were sent while 10,400 were made. 3,451 pools had their Deployments after 870
s, and 4,359 after 900 s since kwok goes first, beside builds of images."""


@contextlib.contextmanager
def control_plane(folder: Path, *, nodes: int = NODES) -> Iterator[ApiServer]:
    """Start everything on ports and data of its own, and stop it."""
    folder.mkdir()
    with contextlib.ExitStack() as running:
        server = apiserver.start(folder, running)
        server.install(ROOT / "crds")
        module = binaries.module_folder(binaries.TRAINING_OPERATOR, versions.TRAINING_OPERATOR)
        server.install(module / PYTORCHJOB_CRD)
        _controllers(server, folder, running)
        _kubelets(server, folder, running)
        for number in range(nodes):
            _make_node(Api(server), f"fake-{number}")
        until(lambda: _all_ready(server), what="the fake nodes", seconds=120)
        yield server


def _controllers(server: ApiServer, folder: Path, running: contextlib.ExitStack) -> None:
    kubernetes, config = binary("kubernetes"), ("--kubeconfig", str(server.kubeconfig))
    _start(
        running,
        folder,
        "controller-manager",
        kubernetes,
        "kube-controller-manager",
        *config,
        "--leader-elect=false",
        *RATES,
        "--controllers",
        CONTROLLERS,
        "--secure-port",
        "0",
        "--concurrent-deployment-syncs",
        "20",
        "--concurrent-replicaset-syncs",
        "20",
    )
    _start(
        running,
        folder,
        "scheduler",
        kubernetes,
        "kube-scheduler",
        *config,
        "--leader-elect=false",
        *RATES,
        "--secure-port",
        "0",
    )


def _kubelets(server: ApiServer, folder: Path, running: contextlib.ExitStack) -> None:
    stages = folder / "stages.yaml"
    stages.write_text(yaml.safe_dump_all(_stages()))
    _start(
        running,
        folder,
        "kwok",
        *PREFERRED,
        binary("kwok"),
        "--kubeconfig",
        str(server.kubeconfig),
        "--manage-all-nodes",
        "--config",
        str(stages),
        "--cidr",
        "10.64.0.1/10",
    )


def _stages() -> list[dict[str, Any]]:
    """Kwok's own fast stages, with a pause before a pod is Ready."""
    folder = binaries.module_folder(KWOK, versions.KWOK) / "kustomize/stage"
    files = (
        "node/fast/node-initialize.yaml",
        "pod/fast/pod-ready.yaml",
        "pod/fast/pod-delete.yaml",
    )
    stages = [yaml.safe_load((folder / file).read_text()) for file in files]
    stages[1]["spec"]["delay"] = {"durationMilliseconds": READY_MILLISECONDS}
    return stages


def _start(running: contextlib.ExitStack, folder: Path, name: str, *command: str) -> None:
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=SELDOM | os.environ)

    def stop() -> None:
        process.terminate()
        process.wait(30)

    running.callback(stop)


def _make_node(api: Api, name: str) -> None:
    api.send("POST", "/api/v1/nodes", _node(name))
    # A new node is tainted as not ready; what would take that away wants heartbeats, too.
    api.send("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, content=MERGE)


def _node(name: str) -> dict[str, Any]:
    size = {"cpu": "1k", "memory": "1Ti", "pods": "1k"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": size, "capacity": size},
    }


def _all_ready(server: ApiServer) -> bool:
    nodes = json.loads(Api(server).text("/api/v1/nodes"))["items"]
    return all(
        any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in node["status"].get("conditions", [])
        )
        for node in nodes
    )
