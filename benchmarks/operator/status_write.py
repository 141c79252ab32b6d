"""What a status write of an RLJob costs the API server, and the share of our CEL rules.

A real API server with the definitions as they are installed, and with the same ones without their
CEL rules, in turns: each of some jobs has its two statuses written again and again, by the
operator's own client. Only processor time of the API server counts.
"""

from __future__ import annotations

import copy
import itertools
import json
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kubernetes.config import new_client_from_config

from benchmarks.operator.lab import jobs, processor, sides
from benchmarks.operator.lab.api import Api, ApiError, Manifest
from benchmarks.operator.lab.control_plane import control_plane
from benchmarks.support.result import Result, is_quick
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.kinds import RLJOB
from rl_operator.kube.names import STATUS_MANAGER
from tests.kube.apiserver import ApiServer
from tests.samples.manifests import changed
from tests.waiting import until

COUNT, QUICK_COUNT = 100, 40
ROUNDS, QUICK_ROUNDS = 5, 2
RULES = "x-kubernetes-validations"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rljobs.rl-operator.io"


def main() -> None:
    """Measure and print."""
    quick = is_quick(__doc__)
    count, rounds = (QUICK_COUNT, QUICK_ROUNDS) if quick else (COUNT, ROUNDS)
    result = Result("operator.status_write")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recipe = sides.record(folder / "recording")
        statuses = [json.loads(line)["status"] for line in (recipe.first_status, recipe.job_status)]
        with control_plane(folder / "control-plane", nodes=1) as server:
            costs = measured(server, statuses, count=count, rounds=rounds)
    result.figures = {
        what: {"milliseconds": seconds, "median": statistics.median(seconds)}
        for what, seconds in costs.items()
    }
    whole, bare = (result.figures[what]["median"] for what in ("with rules", "without"))
    result.figures["share of the rules"] = round(1 - bare / whole, 3)
    result.print()


def measured(
    server: ApiServer, statuses: list[Manifest], *, count: int, rounds: int
) -> dict[str, list[float]]:
    """Milliseconds of the API server's processor time per write of each round."""
    api, names = Api(server), jobs.names_of(count, "bare")
    jobs.make_namespaces(api, names)
    stored = [
        api.send("POST", jobs.path(namespace), jobs.manifest(name, namespace))
        for namespace, name in names
    ]
    writer = Writer(_as_operator(server), stored, itertools.cycle(statuses))
    installed = api.send("GET", DEFINITION)["spec"]
    definitions = {"with rules": installed, "without": _without_rules(installed)}
    costs: dict[str, list[float]] = {what: [] for what in definitions}
    for _ in range(rounds):
        for what, definition in definitions.items():
            _install(api, definition, refuses=what == "with rules")
            writer.write()  # the first write with this definition reads the old objects
            before = processor.spent()
            for _ in statuses:
                writer.write()
            spent = processor.spent()["kube-apiserver"] - before["kube-apiserver"]
            costs[what].append(round(1000 * spent / count / len(statuses), 2))
            print(f"{what}: {costs[what][-1]} ms of the API server per status", flush=True)
    return costs


class Writer:
    """Writes statuses of some jobs as the operator does."""

    def __init__(
        self, cluster: Cluster, stored: list[Manifest], statuses: Iterator[Manifest]
    ) -> None:
        self._cluster, self._stored, self._statuses = cluster, stored, statuses

    def write(self) -> None:
        """The next status, to all of them."""
        status = next(self._statuses)
        self._stored = [self._write(stored, status) for stored in self._stored]

    def _write(self, job: Manifest, status: Manifest) -> Manifest:
        known = {
            field: job["metadata"][field] for field in ("name", "namespace", "resourceVersion")
        }
        body = {"apiVersion": RLJOB.api_version, "kind": RLJOB.name, "metadata": known}
        return self._cluster.apply(
            RLJOB, body | {"status": status}, manager=STATUS_MANAGER, subresource="status"
        )


def _as_operator(server: ApiServer) -> Cluster:
    api = new_client_from_config(config_file=str(server.kubeconfig))
    return Cluster(api, may_write=lambda: None, count=lambda verb, kind: None)


def _without_rules(definition: Manifest) -> Manifest:
    copied = copy.deepcopy(definition)
    left: list[Any] = [copied]
    while left:
        left_over = left.pop()
        if isinstance(left_over, dict):
            left_over.pop(RULES, None)
            left += left_over.values()
        elif isinstance(left_over, list):
            left += left_over
    return copied


def _install(api: Api, definition: Manifest, *, refuses: bool) -> None:
    """Put a definition in place and wait until it is what the API server goes by."""
    stored = api.send("GET", DEFINITION)
    api.send("PUT", DEFINITION, {**stored, "spec": definition})
    wrong = changed("spec.weightSync.everySteps", 100)  # more than the staleness that is allowed
    wrong["metadata"] = {"name": "wrong", "namespace": "default"}

    def is_in_place() -> bool:
        try:
            api.send("POST", jobs.path("default") + "?dryRun=All", wrong)
        except ApiError:
            return refuses
        return not refuses

    until(is_in_place, what="the definition")


if __name__ == "__main__":
    main()
