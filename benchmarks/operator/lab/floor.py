"""The floor: a script that makes every object that the operator makes, and thinks of nothing.

What is to be made is recorded from one job that the operator has brought up, statuses and Events
included. The script keeps the operator's one order that costs time: a trainer is made when the
samplers of its job are ready. Its jobs are Ready when users see it, as the operator's are.
"""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.operator.lab.api import MERGE, Api, Manifest
from benchmarks.operator.lab.fleet import Fleet, Team
from benchmarks.operator.lab.jobs import (
    LIMIT_SECONDS,
    SAMPLERS,
    Times,
    arriving,
    manifest,
    path,
    users,
    wait_ready,
    watched,
)
from tests.waiting import until

MAKERS = 16
"""Threads of the script; the operator has 8 by default."""
RECORDED = ("recorded-namespace", "recorded-job")
SERVERS_OWN = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")
BEFORE = (
    "/api/v1/{}/configmaps",
    "/apis/networking.k8s.io/v1/{}/networkpolicies",
    "/apis/rl-operator.io/v1alpha1/{}/samplerpools",
    "/apis/apps/v1/{}/deployments",
    "/apis/policy/v1/{}/poddisruptionbudgets",
)
"""Collections of what is made at once; the pool comes before what it owns."""
EVENTS = "/apis/events.k8s.io/v1/{}/events"
TRAINERS = "/apis/kubeflow.org/v1/{}/pytorchjobs"
POOLS = BEFORE[2]


@dataclass(frozen=True)
class Recipe:
    """Everything that is created for a job: path of its collection, and its text."""

    job_uid: str
    pool_uid: str
    before: list[tuple[str, str]]
    trainer: tuple[str, str]
    events: list[tuple[str, str]]
    first_status: str
    job_status: str
    pool_status: str

    def save(self, path: Path) -> None:
        """Write it into a file."""
        path.write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Recipe:
        """Read what ``save`` has written."""
        plan = json.loads(path.read_text())
        pairs = {key: [(at, text) for at, text in plan[key]] for key in ("before", "events")}
        return cls(**{**plan, **pairs, "trainer": tuple(plan["trainer"])})

    @classmethod
    def recorded(cls, api: Api, first_status: Manifest) -> Recipe:
        """What there is for the recorded job, whose first status the last one has replaced."""
        namespace, name = RECORDED
        job = api.send("GET", path(namespace, name))

        def listed(collection: str) -> list[dict[str, Any]]:
            at = collection.format(f"namespaces/{namespace}")
            return list(api.send("GET", at)["items"])

        def texts(collection: str) -> list[tuple[str, str]]:
            children = [item for item in listed(collection) if name in json.dumps(item)]
            return [(collection, json.dumps(_bare(item))) for item in children]

        # A budget is made when a pod is ready, of which the job's Ready need not wait.
        until(lambda: all(map(texts, BEFORE)), what="all of the job that is recorded")
        (pool,) = listed(POOLS)
        return cls(
            job_uid=job["metadata"]["uid"],
            pool_uid=pool["metadata"]["uid"],
            before=[text for collection in BEFORE for text in texts(collection)],
            trainer=texts(TRAINERS)[0],
            events=[
                (EVENTS, json.dumps(_bare(event)))
                for event in listed(EVENTS)
                if event["reportingController"] == "rl-operator"
            ],
            first_status=json.dumps({"status": first_status}),
            job_status=json.dumps({"status": job["status"]}),
            pool_status=json.dumps({"status": pool["status"]}),
        )


def _bare(item: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in item["metadata"].items() if key not in SERVERS_OWN}
    return {key: value for key, value in item.items() if key != "status"} | {"metadata": metadata}


class Script:
    """Makes jobs by the recipe."""

    def __init__(self, api: Api, recipe: Recipe) -> None:
        self._api, self._recipe = api, recipe
        self._times = Times()
        self._jobs: dict[str, tuple[str, str, str]] = {}
        self._taken: set[tuple[str, str]] = set()
        """Steps of runs."""
        self._lock = threading.Lock()

    def advance(self, run: str, team: Team) -> None:
        """Continue a job when its samplers or its trainer have become ready."""
        if len(team.ready) == SAMPLERS and self._is_first(run, "trainer"):
            namespace, name, pool_uid = self._jobs[run]
            self._status(path(namespace, name), self._recipe.first_status, run, pool_uid, name)
            self._make(self._recipe.trainer, namespace, name, run, pool_uid)
        if team.trainer_ready and self._is_first(run, "end"):
            self._finish(*self._jobs[run], run)

    def _is_first(self, run: str, step: str) -> bool:
        """Whether this is the first call for a step of a job.

        Several pods become ready at once, so a call for the second of three may see all of them
        ready.
        """
        with self._lock:
            taken = (run, step) in self._taken
            self._taken.add((run, step))
        return not taken

    def _finish(self, namespace: str, name: str, pool_uid: str, run: str) -> None:
        pool = POOLS.format(f"namespaces/{namespace}") + f"/{name}-main"
        self._status(pool, self._recipe.pool_status, run, pool_uid, name)
        for event in self._recipe.events:
            self._make(event, namespace, name, run, pool_uid)
        self._status(path(namespace, name), self._recipe.job_status, run, pool_uid, name)

    def _status(self, at: str, text: str, run: str, pool_uid: str, name: str) -> None:
        filled = self._filled(text, at.split("/")[5], name, run, pool_uid)
        self._api.send("PATCH", f"{at}/status", filled, content=MERGE)

    def _make(
        self, what: tuple[str, str], namespace: str, name: str, run: str, pool_uid: str
    ) -> dict[str, Any]:
        at = what[0].format(f"namespaces/{namespace}")
        return self._api.send("POST", at, self._filled(what[1], namespace, name, run, pool_uid))

    def _filled(self, text: str, namespace: str, name: str, run: str, pool_uid: str) -> str:
        return (
            text.replace(RECORDED[0], namespace)
            .replace(RECORDED[1], name)
            .replace(self._recipe.job_uid, run)
            .replace(self._recipe.pool_uid, pool_uid or self._recipe.pool_uid)
        )

    def ask(self, job: tuple[str, str], makers: ThreadPoolExecutor) -> Future[None]:
        """What a user does: create a job, which is begun then."""
        namespace, name = job
        self._times.asked[job] = time.monotonic()
        stored = self._api.send("POST", path(namespace), manifest(name, namespace))
        return makers.submit(self.begin, job, stored["metadata"]["uid"])

    def begin(self, job: tuple[str, str], run: str) -> None:
        """Make all that needs no pod."""
        (namespace, name), pool_uid = job, ""
        for what in self._recipe.before:
            if what[0] == POOLS:
                pool_uid = self._make(what, namespace, name, run, "")["metadata"]["uid"]
                self._jobs[run] = (namespace, name, pool_uid)
            else:
                self._make(what, namespace, name, run, pool_uid)

    def run(self, jobs: list[tuple[str, str]], *, seconds: float, over_seconds: float) -> Times:
        """Make jobs that are asked for as they are of the operator."""
        with watched(self._api, self._times):
            with users(len(jobs), over_seconds) as asking, ThreadPoolExecutor(MAKERS) as makers:
                come = arriving(jobs, over_seconds)
                making = list(asking.map(lambda job: self.ask(job, makers), come))
            for thread in making:
                thread.result()
            wait_ready(self._times, seconds=seconds)
        return self._times


def bring_up(
    api: Api,
    recipe: Recipe,
    folder: Path,
    jobs: list[tuple[str, str]],
    *,
    seconds: float = LIMIT_SECONDS,
    over_seconds: float = 0.0,
) -> Times:
    """Make jobs and wait until all that belongs to them is there and ready, or time is over."""
    script = Script(api, recipe)
    with Fleet(api, folder, on_change=script.advance).at_work():
        return script.run(jobs, seconds=seconds, over_seconds=over_seconds)
