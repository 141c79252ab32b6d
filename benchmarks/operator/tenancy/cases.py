"""What a hostile tenant does: its stores' Secret, its data, its jobs."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from benchmarks.operator.lab.process import PACKAGES
from rl_operator.kube import kinds
from tests.contract.rl_operator.world import World
from tests.samples.documents import a_run, a_sampler
from tests.servers import ROOT, Server, free_port
from tests.waiting import until

LINE_BYTES = 15 << 20
LARGE_BYTES = 15 << 20
PAGE = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """Attackers are whole namespaces, each with its own Secret and its own reader."""

    servers: tuple[str, ...] = ()
    """Kinds of ``hostile_server``: the first of s3 and of mongo takes the place of a real store."""
    line: bool = False
    """The dataset is one line of JSON."""
    registrations: int = 0
    """Of samplers of the tenant's first run."""
    large: int = 0
    """Registrations of ``LARGE_BYTES`` of that run."""


CASES = {
    "nobody": Attack(),
    "dripping stores": Attack(servers=("dripping-s3", "dripping-mongo")),
    "dripping bucket": Attack(servers=("dripping-s3",)),
    "compressed bombs": Attack(servers=("inflating-mongo",)),
    "endless listings": Attack(servers=("endless-s3",)),
    "one line of 15 MiB": Attack(line=True),
    "registrations": Attack(registrations=100_000),
    "registrations of 15 MiB": Attack(large=4),
}


@contextlib.contextmanager
def hostile_stores(attack: Attack, folder: Path) -> Iterator[dict[str, str]]:
    """Start the attack's servers; the keys of the Secret that lead to them."""
    with contextlib.ExitStack() as running:
        changes = {}
        for kind in attack.servers:
            port = free_port()
            # Its port is its own: whoever asks whether it is ready already holds a connection.
            running.enter_context(started(kind, port, folder))
            if kind.endswith("mongo"):
                changes["mongoUri"] = f"mongodb://127.0.0.1:{port}/"
            else:
                changes["s3Endpoint"] = f"http://127.0.0.1:{port}"
        yield changes


@contextlib.contextmanager
def started(kind: str, port: int, folder: Path) -> Iterator[None]:
    """A hostile server, which answers nobody honestly: it is ready when it has been started."""
    paths = [str(ROOT / package) for package in PACKAGES]
    server = Server(
        command=[
            sys.executable,
            "-m",
            "benchmarks.operator.tenancy.hostile_server",
            kind,
            str(port),
        ],
        ready_url="",
        log=folder / f"{kind}.log",
        environment={"PYTHONPATH": os.pathsep.join(paths)},
    )
    server.launch()
    try:
        until(lambda: listens(port), what=f"the server {kind}")
        yield
    finally:
        server.kill()


def listens(port: int) -> bool:
    """Whether a process listens on a port of the loopback interface; connects to nothing."""
    wanted = f"0100007F:{port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[1] == wanted and row[3] == "0A" for row in rows)


def attack_with(world: World, attack: Attack, changes: dict[str, str], *, jobs: int) -> None:
    """Create a hostile tenant's Secret, data and jobs."""
    world.make_secret(**changes)
    world.upload_inputs()
    if attack.line:
        line = b'{"id": "1", "query": "' + b"[" * LINE_BYTES + b'", "answer": "2"}\n'
        world.stores.objects.put(f"{world.settings.s3_prefix}train.jsonl", line)
    for number in range(jobs):
        world.make_job(f"hostile-{number}")
    if attack.registrations or attack.large:
        register(world, runs_of(world, jobs)[0], attack)


def runs_of(world: World, jobs: int) -> list[str]:
    """The runs of a tenant's jobs, once all of them have one."""

    def named() -> list[str]:
        statuses = [job.get("status", {}) for job in world.objects(kinds.RLJOB)]
        runs = [str(status["runId"]) for status in statuses if status.get("runId")]
        return runs if len(runs) == jobs else []

    return until(named, what="the runs of the hostile jobs")


def register(world: World, run: str, attack: Attack) -> None:
    """Write the run and its registrations into the tenant's own store."""
    if world.stores.runs.get(run) is None:
        world.stores.runs.create(a_run(id=run))
    documents = (
        a_sampler(str(each), id=f"{run}.sampler.{each}", run=run).to_mongo()
        for each in range(attack.registrations)
    )
    samplers = world.stores.mongo.collection("samplers")
    while page := list(islice(documents, PAGE)):
        samplers.insert_many(page, ordered=False)
    for each in range(attack.large):
        large = a_sampler(str(each), id=f"{run}.large.{each}", run=run).to_mongo()
        samplers.insert_one({**large, "message": "x" * LARGE_BYTES})
