"""The operator's process with no more rights than the chart gives: watches, leadership, signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from rl_operator import kinds
from tests.apiserver import ApiServer, kubeconfig
from tests.contract.rl_operator.world import World
from tests.servers import ROOT, Server, binary, free_port

SYSTEM = "rl-system"
SOON_SECONDS = 30.0
TAKEOVER_SECONDS = 15.0 + 5.0
IMAGES = ("operator", "trainer", "sampler", "engine", "store", "minio")
RIGHTS = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")


@dataclass
class Process:
    """One operator process."""

    server: Server
    identity: str

    def complaints(self) -> list[str]:
        """What it logged of errors and of rights that it lacks."""
        lines = [json.loads(one) for one in self.server.log.read_text().splitlines()]
        return [
            one["message"]
            for one in lines
            if (one["level"] == "ERROR" and one["logger"].startswith("rl_operator"))
            or "forbidden" in one["message"]
        ]


@dataclass
class Starter:
    """Starts operators as the chart's service account."""

    folder: Path
    kubeconfig: Path
    started: list[Process] = field(default_factory=list)

    def __call__(self, identity: str) -> Process:
        port = free_port()
        images = [f"--{name}-image={name}:1" for name in ("trainer", "sampler", "engine")]
        server = Server(
            command=[
                sys.executable, "-m", "rl_operator", "--namespace", SYSTEM, "--identity", identity,
                "--listen-port", str(port), "--progress-seconds", "1", *images,
            ],
            ready_url=f"http://127.0.0.1:{port}/readyz",
            log=self.folder / f"{identity}.log",
            environment={
                "KUBECONFIG": str(self.kubeconfig),
                "PYTHONPATH": os.pathsep.join(str(ROOT / one) for one in ("contracts", "operator")),
            },
        )  # fmt: skip
        process = Process(server=server, identity=identity)
        self.started.append(process)
        server.start()
        return process


@pytest.fixture(scope="module")
def rights(with_trainer_kind: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kubeconfig of the operator's service account, with the chart's rights and no others."""
    apiserver = with_trainer_kind
    images = [f"--set=images.{name}={name}:1" for name in IMAGES]
    rendered = subprocess.run(
        [
            binary("helm"), "template", "rl-operator", str(ROOT / "charts/rl-operator"),
            "--namespace", SYSTEM, "--kube-version", "1.34.0", *images,
        ],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    wanted = [one for one in yaml.safe_load_all(rendered) if one and one["kind"] in RIGHTS]
    apiserver.kubectl("create", "namespace", SYSTEM)
    items = {"apiVersion": "v1", "kind": "List", "items": wanted}
    apiserver.kubectl("apply", "-f", "-", stdin=json.dumps(items))
    token = apiserver.kubectl("-n", SYSTEM, "create", "token", "rl-operator").stdout.strip()
    path = tmp_path_factory.mktemp("rights") / "kubeconfig"
    path.write_text(json.dumps(kubeconfig(apiserver, token)))
    return path


@pytest.fixture
def start(rights: Path, tmp_path: Path) -> Iterator[Starter]:
    starter = Starter(folder=tmp_path, kubeconfig=rights)
    yield starter
    for process in starter.started:
        process.server.stop(signal.SIGTERM)


def until(what: str, holds: Callable[[], bool], *, seconds: float = SOON_SECONDS) -> float:
    """Wait for a condition; how long it took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < seconds, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.1)
    return time.monotonic() - began


def holder(world: World) -> str:
    lease = world.cluster.get(kinds.LEASE, SYSTEM, "rl-operator")
    return str(lease["spec"]["holderIdentity"]) if lease else ""


def test_a_job_is_brought_up_with_the_chart_s_rights_alone(world: World, start: Starter) -> None:
    operator = start("first")
    world.make_secret()
    world.upload_inputs()
    job = world.make_job()
    until("the pool's Deployment", lambda: bool(world.objects(kinds.DEPLOYMENT)))
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    world.start_pod("job-main-x-1", of=deployment)
    run = str(world.status(job)["runId"])

    def attempted() -> bool:
        world.register(run, "job-main-x-1")
        return bool(world.objects(kinds.PYTORCH_JOB))

    until("the trainer", attempted)
    reasons = {one["reason"] for one in world.objects(kinds.EVENT)}
    assert {"PoolCreated", "AttemptStarted"} <= reasons
    world.make_job(lifecycle={"dataPolicy": "Delete"})

    def held() -> bool:
        found = world.cluster.get(kinds.RLJOB, job.namespace, job.name)
        return found is not None and bool(found["metadata"].get("finalizers"))

    until("the finalizer", held)
    arguments = ("-n", job.namespace, "delete", "rljob", job.name, "--timeout=60s")
    world.apiserver.kubectl("-n", job.namespace, "delete", "pod", "--all", "--force")
    world.apiserver.kubectl(*arguments)
    assert operator.complaints() == []


def test_kopf_writes_nothing(world: World, start: Starter) -> None:
    start("quiet")
    job = world.make_job()  # stalls: there is no Secret
    until("the job to stall", lambda: world.condition_now(job, "Stalled"))
    found = world.cluster.get(kinds.RLJOB, job.namespace, job.name)
    assert found is not None
    ours = [key for key in found["metadata"].get("annotations", {}) if "kopf" in key]
    assert ours == []
    assert "finalizers" not in found["metadata"]
    managers = {one["manager"] for one in found["metadata"]["managedFields"]}
    assert managers == {"kubectl-client-side-apply", "rl-operator-status"}


def test_a_stopped_leader_gives_way_at_once(world: World, start: Starter) -> None:
    first = start("stopped")
    until("the first to lead", lambda: holder(world) == "stopped")
    assert first.server.process is not None
    process = first.server.process
    first.server.stop(signal.SIGTERM)
    assert process.returncode == 0
    assert holder(world) == ""
    start("next")
    assert until("the next to lead", lambda: holder(world) == "next", seconds=6) < 6


def test_a_killed_leader_is_followed_within_its_lease(world: World, start: Starter) -> None:
    first = start("killed")
    until("the first to lead", lambda: holder(world) == "killed")
    second = start("standby")
    first.server.kill()
    until("the standby to lead", lambda: holder(world) == "standby", seconds=TAKEOVER_SECONDS)
    job = world.make_job()
    until("the standby to work", lambda: world.condition_now(job, "Stalled"))
    assert second.complaints() == []
