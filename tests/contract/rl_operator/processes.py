"""The operator as a process of its own, with no more rights than the chart gives."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_local import versions
from rl_local.build import binaries
from rl_operator.kube import kinds
from rl_operator.kube.kinds import Key
from tests.contract.rl_operator.world import World, install_trainer_kind
from tests.kube.api_front import ApiFront
from tests.kube.apiserver import ApiServer, kubeconfig
from tests.samples.manifests import documents
from tests.servers import ROOT, Server, binary, free_port
from tests.waiting import HUNG_SECONDS, until

SYSTEM = "rl-system"
ACCOUNT = "rl-operator-controller"
IMAGES = ("operator", "trainer", "sampler", "engine", "store", "minio")
RIGHTS = (
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)
PROBE = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "probe"}}
"""RBAC lets the operator create it, the policy does not."""


@dataclass
class Process:
    """One operator process."""

    server: Server
    identity: str
    url: str

    def lines(self) -> list[dict[str, str]]:
        """What it logged; of a line that is being written the end is still to come."""
        whole = self.server.log.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def metrics(self) -> dict[str, float]:
        """Its samples, by name and labels as they are written."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=HUNG_SECONDS) as answer:
            text = answer.read().decode()
        samples = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in samples}

    def ended(self) -> bool:
        """Whether it has ended by itself."""
        return self.server.process is not None and self.server.process.poll() is not None

    def complaints(self) -> list[str]:
        """What it logged of errors and of rights that it lacks."""
        return [
            line["message"]
            for line in self.lines()
            if (line["level"] == "ERROR" and line["logger"].startswith("rl_operator"))
            or "forbidden" in line["message"]
        ]


@dataclass
class Starter:
    """Starts operators as the chart's service account."""

    folder: Path
    kubeconfig: Path
    started: list[Process] = field(default_factory=list)

    def __call__(self, identity: str, *extra: str, wait: bool = True) -> Process:
        port = free_port()
        images = [f"--{name}-image={name}:1" for name in IMAGES[:4]]
        server = Server(
            command=[
                sys.executable,
                "-m",
                "rl_operator",
                "--namespace",
                SYSTEM,
                "--identity",
                identity,
                "--listen-port",
                str(port),
                "--progress-seconds",
                "1",
                *images,
                *extra,
            ],
            ready_url=f"http://127.0.0.1:{port}/readyz",
            log=self.folder / f"{identity}.log",
            environment={
                "KUBECONFIG": str(self.kubeconfig),
                "PYTHONPATH": os.pathsep.join(
                    str(ROOT / name) for name in ("contracts", "operator")
                ),
            },
        )
        process = Process(server=server, identity=identity, url=f"http://127.0.0.1:{port}")
        self.started.append(process)
        if wait:
            server.start()
        else:
            server.launch()
        return process

    def stop(self) -> None:
        """End them all."""
        for process in self.started:
            process.server.stop(signal.SIGTERM)


def grant(apiserver: ApiServer, folder: Path, *values: str, system: str = SYSTEM) -> Path:
    """A kubeconfig of the operator's service account, with the chart's rights and no others.

    The chart's admission policy is installed, too.

    ``values`` are helm's, e.g. ``kueue.enabled=true``; ``system`` is the operator's namespace.
    """
    images = [f"--set=images.{name}={name}:1" for name in IMAGES]
    rendered = subprocess.run(
        [
            binary("helm"),
            "template",
            system,
            str(ROOT / "charts/rl-operator"),
            "--namespace",
            system,
            "--kube-version",
            "1.34.0",
            *images,
            *(f"--set={value}" for value in values),
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    wanted = [manifest for manifest in documents(rendered) if manifest["kind"] in RIGHTS]
    apiserver.kubectl("create", "namespace", system)
    items = {"apiVersion": "v1", "kind": "List", "items": wanted}
    apiserver.kubectl("apply", "-f", "-", stdin=json.dumps(items))
    command = ("-n", system, "create", "token", ACCOUNT, "--duration=24h")
    token = apiserver.kubectl(*command).stdout.strip()
    path = folder / "kubeconfig"
    path.write_text(json.dumps(kubeconfig(apiserver, token)))
    until(lambda: _is_limited(apiserver, system), what="the admission policy")
    return path


def behind(front: ApiFront, rights: Path, folder: Path) -> Path:
    """The operator's kubeconfig, with the front for the API server."""
    config = json.loads(rights.read_text())
    config["clusters"][0]["cluster"] = {"server": front.url}
    path = folder / "kubeconfig-front"
    path.write_text(json.dumps(config))
    return path


def _is_limited(apiserver: ApiServer, system: str) -> bool:
    """Whether the API server evaluates the chart's policy: it takes a second to begin."""
    user = f"system:serviceaccount:{system}:{ACCOUNT}"
    command = ("-n", system, "create", "--dry-run=server", "--as", user, "-f", "-")
    done = apiserver.kubectl(*command, stdin=json.dumps(PROBE), check=False)
    return f"'rl-operator-writes.{system}'" in done.stderr


def trainer_kind(apiserver: ApiServer) -> None:
    """Install training-operator's PyTorchJob."""
    module = binaries.module_folder(binaries.TRAINING_OPERATOR, versions.TRAINING_OPERATOR)
    install_trainer_kind(apiserver, Path(module))


def lease(world: World) -> dict[str, Any]:
    """The operators' Lease, empty before there is one."""
    lease = world.cluster.get(kinds.LEASE, SYSTEM, "rl-operator")
    return dict(lease["spec"]) if lease else {}


def holder(world: World) -> str:
    return str(lease(world).get("holderIdentity", ""))


def begins(world: World, run: str) -> bool:
    """The samplers are heard of; whether there is a trainer."""
    for number in (1, 2):
        world.register(run, f"job-main-x-{number}")
    return bool(world.objects(kinds.PYTORCH_JOB))


def bring_up(world: World) -> tuple[Key, str]:
    """A job whose trainer has begun, and its run."""
    world.make_secret()
    world.upload_inputs()
    job = world.make_job()
    until(lambda: bool(world.objects(kinds.DEPLOYMENT)), what="the pool's Deployment")
    until(lambda: world.status(job).get("runId"), what="the status")
    run = str(world.status(job)["runId"])
    world.start_samplers(run)
    until(lambda: begins(world, run), what="the trainer")
    return job, run
