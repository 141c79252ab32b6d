"""RLJobs that are created at once, and when each of them is Ready."""

from __future__ import annotations

import contextlib
import math
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from benchmarks.operator.lab import processor
from benchmarks.operator.lab.api import Api, Manifest
from tests.samples.manifests import a_job

OnChange = Callable[[Manifest], None]
RLJOBS = "/apis/rl-operator.io/v1alpha1/rljobs"
PER_NAMESPACE = 100
USERS = 100
"""Threads that ask for jobs. No more than these wait for an answer before they ask for the next."""
ASSEMBLED_SECONDS = 30.0
SAMPLERS = 3
LIMIT_SECONDS = 1800.0
TELL_SECONDS = 30.0
"""Seconds between progress lines."""


def path(namespace: str, name: str = "") -> str:
    """URL path of a namespace's RLJobs, or of the named job."""
    root = f"/apis/rl-operator.io/v1alpha1/namespaces/{namespace}/rljobs"
    return f"{root}/{name}" if name else root


def manifest(name: str, namespace: str) -> dict[str, Any]:
    """A job of four pods: a trainer and one pool."""
    template = {"autoscaling": {"minReplicas": SAMPLERS}}
    return a_job(name, namespace=namespace, samplers=[{"name": "main", "template": template}])


@dataclass
class Times:
    """When jobs were asked for and when they were Ready, by namespace and name."""

    asked: dict[tuple[str, str], float] = field(default_factory=dict)
    ready: dict[tuple[str, str], float] = field(default_factory=dict)
    spent: dict[str, float] = field(default_factory=dict)
    """Processor seconds by process when the last job was Ready or time was over."""

    def latencies(self) -> list[float]:
        """Seconds from create to Ready, sorted."""
        return sorted(self.ready[job] - at for job, at in self.asked.items())

    def waits(self) -> list[float]:
        """Seconds from when all were asked for to Ready, sorted.

        That is the first request: of more jobs than there are users each user asks for the next
        one when the last has been answered, so that the slower requests are answered, the less
        ``latencies`` count.
        """
        began = min(self.asked.values())
        return sorted(at - began for at in self.ready.values())

    @property
    def whole(self) -> bool:
        """Whether all are Ready."""
        return len(self.ready) == len(self.asked)

    def reached_s(self, count: int) -> float:
        """Seconds until so many were Ready, from the first request on."""
        return sorted(self.ready.values())[count - 1] - min(self.asked.values())

    def figures(self) -> dict[str, float]:
        """Until all, or as many as there were time for, were Ready, and per job.

        The slope is that of the second half of those that are Ready, in seconds per job.
        """
        count = len(self.ready)
        figures = {"ready": float(count), "asked": float(len(self.asked))}
        figures["asked_s"] = round(max(self.asked.values()) - min(self.asked.values()), 2)
        if count > 1:
            half = count // 2
            slope = (self.reached_s(count) - self.reached_s(half)) / (count - half)
            figures |= {"ready_s": round(self.reached_s(count), 2), "slope_s": round(slope, 3)}
        if not self.whole:
            return figures
        latencies, waits = self.latencies(), self.waits()
        return figures | {
            "asked_to_ready_p50_s": round(statistics.median(waits), 2),
            "asked_to_ready_p99_s": round(percentile(waits, 0.99), 2),
            "create_to_ready_p50_s": round(statistics.median(latencies), 2),
            "create_to_ready_p99_s": round(percentile(latencies, 0.99), 2),
        }


def percentile(ordered: list[float], share: float) -> float:
    """The smallest of the ordered values that so many of them do not exceed (nearest rank)."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def names_of(count: int, prefix: str) -> list[tuple[str, str]]:
    """Namespaces and names of some jobs."""
    return [
        (f"{prefix}-{index // PER_NAMESPACE}", f"{prefix}-{index:05d}") for index in range(count)
    ]


def make_namespaces(api: Api, jobs: list[tuple[str, str]]) -> None:
    """Create the namespaces of some jobs."""
    for name in dict.fromkeys(namespace for namespace, _ in jobs):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        api.send("POST", "/api/v1/namespaces", body)


def create(api: Api, jobs: list[tuple[str, str]], times: Times, *, over_seconds: float) -> None:
    """Create jobs from several threads; times count from the request."""

    def create_job(job: tuple[str, str]) -> None:
        namespace, name = job
        times.asked[job] = time.monotonic()
        api.send("POST", path(namespace), manifest(name, namespace))

    with users(len(jobs), over_seconds) as threads:
        list(threads.map(create_job, arriving(jobs, over_seconds)))


def users(jobs: int, over_seconds: float) -> ThreadPoolExecutor:
    """Threads that create the jobs; all of them create their first job at once.

    Where there is time for jobs to come one after the other, each thread starts with its first.
    """
    count = min(jobs, USERS)
    if over_seconds:
        return ThreadPoolExecutor(count)
    together = threading.Barrier(count, timeout=ASSEMBLED_SECONDS)
    return ThreadPoolExecutor(count, initializer=together.wait)


def arriving(jobs: list[tuple[str, str]], over_seconds: float) -> Iterator[tuple[str, str]]:
    """Each job when it is to be asked for: evenly over a time, or at once."""
    began = time.monotonic()
    for number, job in enumerate(jobs):
        due = began + over_seconds * number / len(jobs)
        time.sleep(max(0.0, due - time.monotonic()))
        yield job


@contextlib.contextmanager
def watched(api: Api, times: Times, on_change: OnChange = lambda job: None) -> Iterator[None]:
    """Note when users see each job Ready and no longer Reconciling, until the end of the block.

    Args:
        api: where.
        times: where it is noted.

        on_change: called with each job at each of its changes.
    """
    ended = threading.Event()

    def watch() -> None:
        for _, job in api.watch(RLJOBS, ended):
            on_change(job)
            key = (job["metadata"]["namespace"], job["metadata"]["name"])
            if _is_ready(job):
                times.ready.setdefault(key, time.monotonic())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _is_ready(job: Manifest) -> bool:
    conditions = job.get("status", {}).get("conditions", [])
    return any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
    )


def wait_ready(times: Times, *, seconds: float) -> None:
    """Wait until all jobs are Ready or time is over; print progress now and then.

    Notes what has been spent by then: it takes the watches seconds to end.
    """
    began = reported = time.monotonic()
    while not times.whole and time.monotonic() - began < seconds:
        time.sleep(0.05)
        if time.monotonic() - reported >= TELL_SECONDS:
            reported = time.monotonic()
            print(
                f"{len(times.ready)} of {len(times.asked)} Ready after {reported - began:.0f} s",
                flush=True,
            )
    times.spent = processor.spent()


def bring_up(
    api: Api,
    jobs: list[tuple[str, str]],
    *,
    seconds: float = LIMIT_SECONDS,
    over_seconds: float = 0.0,
    on_change: OnChange = lambda job: None,
) -> Times:
    """Create jobs and wait until an operator has made them all Ready, or time is over."""
    times = Times()
    with watched(api, times, on_change):
        create(api, jobs, times, over_seconds=over_seconds)
        wait_ready(times, seconds=seconds)
    return times
