"""Kueue is installed while the operator runs; it has the chart's rights and no others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_operator.kube import kinds
from tests.contract.rl_operator.jobs.test_queue import QUEUED, decide, workload
from tests.contract.rl_operator.processes import Starter, grant
from tests.contract.rl_operator.world import World
from tests.kube import kueue
from tests.kube.apiserver import ApiServer
from tests.waiting import until

SYSTEM = "rl-queued"


@pytest.fixture
def without_kueue(queue: World, with_kueue: ApiServer, tmp_path: Path) -> Iterator[World]:
    with_kueue.kubectl("delete", "crd", kueue.definitions()[0]["metadata"]["name"])
    yield queue
    restore(with_kueue, tmp_path)


def restore(apiserver: ApiServer, folder: Path) -> None:
    path = folder / "workloads.json"
    path.write_text(json.dumps(kueue.definitions()[0]))
    apiserver.install(path)


def test_missing_kueue_is_reported_and_used_once_installed(
    without_kueue: World, with_kueue: ApiServer, start: Starter, tmp_path: Path
) -> None:
    """By a process with the chart's rights, which watches Workloads once they are there."""
    world = without_kueue
    starter = Starter(
        folder=tmp_path,
        kubeconfig=grant(with_kueue, tmp_path, "kueue.enabled=true", system=SYSTEM),
    )
    arguments = ("--kueue", "--namespace", SYSTEM, "--watch-namespace", world.namespace)
    try:
        first = starter("first", *arguments)
        job = world.make_job(scheduling=QUEUED)

        def reason() -> str:
            conditions = world.status(job).get("conditions", [])
            return next(
                (
                    str(condition["reason"])
                    for condition in conditions
                    if condition["type"] == "Ready"
                ),
                "",
            )

        until(lambda: reason() == "KueueMissing", what="the missing kind to be told", seen=reason)
        restore(with_kueue, tmp_path)
        until(first.ended, what="the end of the process that does not watch Workloads")
        second = starter("second", *arguments)
        until(lambda: reason() == "Pending", what="the job to be queued", seen=reason)
        decide(world, kueue.admitted(workload(world)))
        until(lambda: world.condition_now(job, "Admitted"), what="the admission to be seen")
        until(lambda: bool(world.objects(kinds.DEPLOYMENT)), what="the samplers' Deployment")
        assert second.complaints() == []
    finally:
        starter.stop()
