"""The dashboard on a store of 500 runs, 100,000 steps and 100,000 rollouts of up to 2 KB.

Real embedded stores; the dashboard is a process of its own, which reads them directly, so its
memory includes what a reader would need. Jobs are made up: no API server takes part. That all
queries are answered from indexes is a contract test (``queries/test_query_plans.py``).
"""

from __future__ import annotations

import contextlib
import http.client
import multiprocessing
import os
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import uvicorn

from benchmarks.support.result import Result, is_quick
from rl_console.dashboard.app import application
from rl_console.dashboard.guard import cookie_name
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.samples.viewed_run import Shape, fill
from tests.samples.viewed_source import ViewedSource
from tests.servers import free_port, running_minio, running_store, settings_of
from tests.waiting import until

RUNS, STEPS, ROLLED = 500, 100_000, 6_250
LARGE = Shape(job="large", steps=STEPS, rolled=ROLLED, groups=4, members=4, tokens=96)
"""6,250 steps of 16 rollouts are 100,000."""
SECONDS, MEGABYTES = 1.0, 300
ROUNDS = 5
KEY = "benchmark"
BASE = "/n/ns/jobs/large"


def main() -> None:
    """Measure and print."""
    quick = is_quick(__doc__)
    shape = replace(LARGE, steps=STEPS // 20, rolled=ROLLED // 20) if quick else LARGE
    result = Result("console")
    with (
        tempfile.TemporaryDirectory() as folder,
        running_store(_made(folder, "store")) as store,
        running_minio(_made(folder, "minio")) as minio,
    ):
        settings = settings_of(store, minio)
        shapes = [shape, *(small(number) for number in range(RUNS - 1))]
        with closing(Stores.connect(settings)) as stores:
            stores.mongo.ensure_indexes()
            stores.objects.make_bucket()
            began = time.monotonic()
            for each in shapes:
                fill(stores, each)
            note(f"filled in {time.monotonic() - began:.0f} s")
        measure(settings, shapes, result)
    result.print()


def small(number: int) -> Shape:
    """One of the other runs."""
    return Shape(job=f"small-{number:03d}", name=f"small{number:03d}", steps=1, groups=1, members=1)


def measure(settings: StoreSettings, shapes: list[Shape], result: Result) -> None:
    """Ask the dashboard, and see what it took."""
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    port = free_port()
    serving = context.Process(target=serve, args=(settings, shapes, port, there), daemon=True)
    serving.start()
    here.recv()
    wait_for(port)
    last = shapes[0].steps
    steps = f"first={last - 400}&last={last}"
    asked = {
        "list": ["/"],
        "run": [BASE, f"{BASE}/metrics.json?points=500"],
        "zoomed run": [f"{BASE}/metrics.json?points=500&first={last // 2}&last={last // 2 + 5000}"],
        "search, many hits": [f"{BASE}/search?text=carry&{steps}"],
        "search, no hit": [f"{BASE}/search?text=absent&{steps}"],
        "step": [f"{BASE}/steps/{last - 7}"],
        "policies": [f"{BASE}/policies"],
    }
    barred = ("list", "run", "search, many hits", "search, no hit")
    for name, paths in asked.items():
        before = processor_seconds(serving.pid or 0)
        times = [sum(get(port, path) for path in paths) for _ in range(ROUNDS)]
        busy = (processor_seconds(serving.pid or 0) - before) / ROUNDS
        note(f"{name}: {' '.join(f'{each:.2f}' for each in times)} s, {busy:.2f} s of a processor")
        result.figures[name] = [round(each, 3) for each in times]
        result.figures[f"{name}, processor seconds of the dashboard"] = round(busy, 3)
        if name in barred:
            result.at_most(f"{name}: slowest of {ROUNDS} in seconds", max(times), SECONDS)
    megabytes = high_water(serving.pid or 0)
    result.at_most("most memory of the process in MB", megabytes, MEGABYTES)
    serving.terminate()
    serving.join()


def serve(settings: StoreSettings, shapes: list[Shape], port: int, ready: Connection) -> None:
    """The dashboard's process."""
    source = ViewedSource(Stores.connect(settings))
    for shape in shapes:
        source.add(shape)
    ready.send(True)
    uvicorn.run(application(source, key=KEY), host="127.0.0.1", port=port, log_level="warning")


def get(port: int, path: str) -> float:
    """Seconds until a page is here."""
    began = time.monotonic()
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", path, headers={"Cookie": f"{cookie_name(KEY)}={KEY}"})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, (path, answer.status)
    return time.monotonic() - began


def wait_for(port: int) -> None:
    """Wait until the process listens."""

    def listens() -> bool:
        with contextlib.suppress(OSError):
            get(port, "/static/icon.svg")
            return True
        return False

    until(listens, what="the dashboard's process to listen")


def processor_seconds(process: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def high_water(process: int) -> float:
    """Most megabytes that a process has had."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def note(text: str) -> None:
    """Say what is going on."""
    print(text, file=sys.stderr, flush=True)


def _made(folder: str, name: str) -> Path:
    made = Path(folder) / name
    made.mkdir()
    return made


if __name__ == "__main__":
    main()
