"""What runs in the pods of a real cluster: trainers are made, samplers register, policies come out.

Stands in for training-operator (a pod for each PyTorchJob) and for what the agents and trainers say
to the stores, which is written as one small file for each run.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

from benchmarks.operator.lab.api import Api, ApiError, Manifest
from rl_operator.kube import names

THREADS = 8
PYTORCHJOBS = "/apis/kubeflow.org/v1/pytorchjobs"


@dataclass
class Team:
    """The pods of a run."""

    samplers: dict[str, str] = field(default_factory=dict)
    """Pool by pod, of those that have a node."""
    ready: set[str] = field(default_factory=set)
    began: float | None = None
    """When its trainer got a node, in seconds since the epoch."""
    trainer_ready: bool = False
    over: bool = False


OnChange = Callable[[str, Team], None]


class Fleet:
    """All pods, kept up to date by a watch."""

    def __init__(
        self, api: Api, folder: Path, *, on_change: OnChange = lambda run, team: None
    ) -> None:
        """Create a fleet; nothing is read before ``at_work``.

        Args:
            api: where.
            folder: where the files of the runs go.

            on_change: called with a run and its pods whenever a pod has become ready.
        """
        self._api, self._folder, self._on_change = api, folder, on_change
        self._teams: dict[str, Team] = {}
        self._ended = threading.Event()
        self._executor = ThreadPoolExecutor(THREADS)
        self._doing: list[Future[None]] = []

    @contextlib.contextmanager
    def at_work(self) -> Iterator[Fleet]:
        """Play until the end of the block; raises what went wrong meanwhile."""
        self._folder.mkdir(parents=True, exist_ok=True)
        loops = [threading.Thread(target=loop) for loop in (self._pods, self._trainers)]
        for loop in loops:
            loop.start()
        try:
            yield self
        finally:
            self._ended.set()
            for loop in loops:
                loop.join()
            self._executor.shutdown()
            for done in self._doing:
                done.result()  # also raises the reason when the block ended because it waited

    def finish(self) -> None:
        """All trainers say that they have succeeded."""
        for run, team in self._teams.items():
            team.over = True
            self._write(run, team)

    def _pods(self) -> None:
        for kind, pod in self._api.watch("/api/v1/pods", self._ended):
            labels = pod["metadata"].get("labels", {})
            run = labels.get(names.RUN_LABEL)
            if run is None:
                continue
            team = self._teams.setdefault(run, Team())
            changed = self._gone(team, pod) if kind == "DELETED" else self._seen(team, pod, labels)
            if changed:
                self._write(run, team)
            if _is_ready(pod) and kind != "DELETED":
                self._ready(run, team, pod, labels)

    def _gone(self, team: Team, pod: Manifest) -> bool:
        team.ready.discard(pod["metadata"]["name"])
        return team.samplers.pop(pod["metadata"]["name"], None) is not None

    def _seen(self, team: Team, pod: Manifest, labels: dict[str, str]) -> bool:
        """Whether a pod that has got its node is news."""
        name = pod["metadata"]["name"]
        if not pod["spec"].get("nodeName"):
            return False
        if labels[names.COMPONENT_LABEL] == "trainer":
            news = team.began is None
            team.began = team.began or time.time()
            return news
        news = name not in team.samplers
        team.samplers[name] = labels[names.POOL_LABEL]
        return news

    def _ready(self, run: str, team: Team, pod: Manifest, labels: dict[str, str]) -> None:
        name = pod["metadata"]["name"]
        if labels[names.COMPONENT_LABEL] == "trainer":
            news, team.trainer_ready = not team.trainer_ready, True
        else:
            news = name not in team.ready
            team.ready.add(name)
        if news:
            self._doing.append(self._executor.submit(self._on_change, run, team))

    def _write(self, run: str, team: Team) -> None:
        record = {"samplers": team.samplers, "began": team.began, "over": team.over}
        half = self._folder / f".{run}"
        half.write_text(json.dumps(record))
        half.replace(self._folder / run)

    def _trainers(self) -> None:
        for kind, job in self._api.watch(PYTORCHJOBS, self._ended):
            if kind == "ADDED":
                self._doing.append(self._executor.submit(self._make, job))

    def _make(self, job: Manifest) -> None:
        collection = f"/api/v1/namespaces/{job['metadata']['namespace']}/pods"
        try:
            self._api.send("POST", collection, _pod(job))
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:  # else it is there already
                raise


def _pod(job: Manifest) -> dict[str, Any]:
    template = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    meta = job["metadata"]
    owner = {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
    metadata = {
        **template["metadata"],
        "name": f"{meta['name']}-worker-0",
        "ownerReferences": [owner],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def _is_ready(pod: Manifest) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
    )
