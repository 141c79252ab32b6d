"""A tenant that attacks, and how long the jobs of another tenant take to start meanwhile.

A real API server without controllers, the operator as a process with the chart's rights, a reader
process for each namespace with the memory limit of its pod, a document store for the attackers and
another for the others, and a bucket. The benchmark plays the kubelet, and says what pods of
samplers would. Hostile stores are processes of their own. A job has started when its trainer's
PyTorchJob exists.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kubernetes import client, config

from benchmarks.operator.tenancy.cases import CASES, Attack, attack_with, hostile_stores
from benchmarks.operator.tenancy.memory_limit import MemoryLimit
from benchmarks.support.result import Result
from benchmarks.support.samplers import scratch
from rl_contracts.stores.connect import Stores
from rl_operator.kube import kinds
from rl_operator.kube.cluster import Cluster
from tests.contract.rl_operator.processes import Process, Starter, begins, grant, trainer_kind
from tests.contract.rl_operator.world import World, a_namespace
from tests.kube import apiserver
from tests.kube.apiserver import ApiServer
from tests.kube.kubelet import ReaderKubelet
from tests.servers import (
    ROOT,
    MinioServer,
    StoreServer,
    running_minio,
    running_store,
    settings_of,
)
from tests.waiting import until

START_SECONDS, OPERATOR_MB = 30.0, 256.0
NAMESPACES, JOBS, VICTIMS = 4, 8, 3
SETTLE_SECONDS = 5.0
"""Given to the attack before the other tenant comes."""


@dataclass
class Lab:
    """What all cases share."""

    server: ApiServer
    kubeconfig: Path
    api: client.ApiClient
    kubelet: ReaderKubelet
    store: StoreServer
    attacked: StoreServer
    """Holds the databases of attackers: an embedded store serves one namespace."""
    minio: MinioServer
    folder: Path

    @contextlib.contextmanager
    def tenant(self, *, hostile: bool = False) -> Iterator[World]:
        """A namespace with a database and a prefix of its own."""
        settings = settings_of(self.attacked if hostile else self.store, self.minio)
        cluster = Cluster(self.api, may_write=lambda: None, count=lambda verb, kind: None)
        with contextlib.closing(Stores.connect(settings, patience_seconds=60)) as stores:
            stores.mongo.ensure_indexes()
            stores.objects.make_bucket()
            world = World(
                apiserver=self.server,
                cluster=cluster,
                operators=cluster,
                stores=stores,
                settings=settings,
                namespace=a_namespace(self.server),
            )
            try:
                yield world
            finally:
                world.clear()
                stores.mongo.drop_database()


@dataclass
class Operator:
    """The operator's process, which is started again where it has ended, as a Deployment's is."""

    starter: Starter
    process: Process
    restarts: int = 0
    highest_mb: float = 0.0

    def look(self) -> None:
        """Start it again if it has ended, and note its memory."""
        if self.process.ended():
            print(f"the operator has ended: {self.process.server.log.read_text()[-600:]}")
            self.restarts += 1
            self.process = self.starter(f"bench-{self.restarts}", wait=False)
        self.highest_mb = max(self.highest_mb, highest_mb(self.process))


@dataclass
class End:
    """What an attack came to."""

    starts: list[float]
    operator_mb: float
    restarts: int
    """Of the operator."""
    readers_mb: float
    killed: int
    reasons: dict[str, int]

    @property
    def row(self) -> str:
        """A row of the table."""
        starts = ", ".join(f"{seconds:.1f}" for seconds in self.starts)
        reasons = ", ".join(f"{reason} {count}" for reason, count in self.reasons.items())
        return (
            f"starts {starts} s; operator {self.operator_mb:.0f} MB, "
            f"restarted {self.restarts} times, largest hostile reader "
            f"{self.readers_mb:.0f} MB, {self.killed} readers killed; jobs say: {reasons}"
        )


def main() -> None:
    """Attack and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one attacker, one start")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--registrations", type=int, help="of each tenant, instead of the case's")
    given = parser.parse_args()
    result = Result("operator.tenants")
    with scratch() as folder, running_lab(folder) as lab:
        for name in given.cases:
            attack = CASES[name]
            if attack.registrations and given.registrations:
                attack = Attack(registrations=given.registrations)
            end = outlast(lab, name, attack, quick=given.quick)
            print(f"{name:24} {end.row}", flush=True)
            result.figures[name] = end.row
            result.at_most(f"{name}: slowest start, s", max(end.starts), START_SECONDS)
            result.at_most(f"{name}: operator's memory, MB", end.operator_mb, OPERATOR_MB)
    result.print()


@contextlib.contextmanager
def running_lab(folder: Path) -> Iterator[Lab]:
    """Start what all cases share, and stop it."""
    for name in ("api", "store", "attacked", "minio", "readers", "rights"):
        (folder / name).mkdir()
    with contextlib.ExitStack() as running:
        server = apiserver.start(folder / "api", running)
        server.install(ROOT / "crds")
        trainer_kind(server)
        configuration = client.Configuration()
        config.load_kube_config(str(server.kubeconfig), client_configuration=configuration)
        api = running.enter_context(client.ApiClient(configuration))
        kubelet = ReaderKubelet(api, folder / "readers", processes=True)
        kubelet.start()
        running.callback(kubelet.close)
        yield Lab(
            server=server,
            kubeconfig=grant(server, folder / "rights"),
            api=api,
            kubelet=kubelet,
            store=running.enter_context(running_store(folder / "store")),
            attacked=running.enter_context(running_store(folder / "attacked")),
            minio=running.enter_context(running_minio(folder / "minio")),
            folder=folder,
        )


def outlast(lab: Lab, name: str, attack: Attack, *, quick: bool) -> End:
    """Attack from some namespaces, and start jobs in others one after the other."""
    folder = lab.folder / name.replace(" ", "-")
    folder.mkdir()
    starter, limit = Starter(folder=folder, kubeconfig=lab.kubeconfig), MemoryLimit(lab.kubelet)
    with contextlib.ExitStack() as running:
        running.callback(starter.stop)
        running.enter_context(limit.enforced())
        operator = Operator(starter, starter("bench"))
        hostile = (
            []
            if name == "nobody"
            else [lab.tenant(hostile=True) for _ in range(1 if quick else NAMESPACES)]
        )
        changes = running.enter_context(hostile_stores(attack, folder))
        attackers = [running.enter_context(tenant) for tenant in hostile]
        for world in attackers:
            attack_with(world, attack, changes, jobs=JOBS)
        time.sleep(SETTLE_SECONDS)
        starts = [started_after(lab, operator) for _ in range(1 if quick else VICTIMS)]
        held = [limit.highest.get(world.namespace, 0) for world in attackers]
        return End(
            starts=starts,
            operator_mb=operator.highest_mb,
            restarts=operator.restarts,
            readers_mb=max(held, default=0) / 1e6,
            killed=len(limit.killed),
            reasons=dict(Counter(reason for world in attackers for reason in ready_reasons(world))),
        )


def started_after(lab: Lab, operator: Operator) -> float:
    """Seconds from the request for a job in a new namespace to its trainer."""

    def holds(condition: Callable[[], bool]) -> bool:
        operator.look()
        return condition()

    with lab.tenant() as world:
        world.make_secret()
        world.upload_inputs()
        began = time.monotonic()
        job = world.make_job()
        until(
            lambda: holds(lambda: bool(world.objects(kinds.DEPLOYMENT))),
            what="the pool's Deployment",
            seen=lambda: world.status(job),
        )
        run = str(world.status(job)["runId"])
        world.start_samplers(run)
        until(lambda: holds(lambda: begins(world, run)), what="the trainer")
        return time.monotonic() - began


def highest_mb(operator: Process) -> float:
    """Most memory that an operator has had; 0 when it has just ended."""
    assert operator.server.process is not None
    lines = Path(f"/proc/{operator.server.process.pid}/status").read_text().splitlines()
    highest = (line.split()[1] for line in lines if line.startswith("VmHWM"))
    return int(next(highest, "0")) / 1000


def ready_reasons(world: World) -> Iterator[str]:
    """The reason of each job's condition ``Ready``."""
    for job in world.objects(kinds.RLJOB):
        for condition in job.get("status", {}).get("conditions", ()):
            if condition["type"] == "Ready":
                yield condition["reason"]


if __name__ == "__main__":
    main()
