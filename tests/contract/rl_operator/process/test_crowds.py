"""Large objects and idle connections of one tenant leave the operator ready for the others."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rl_operator.kube import kinds
from tests.contract.rl_operator.processes import Starter, begins
from tests.contract.rl_operator.world import World, a_namespace
from tests.network.crowd import crowding, drip, seconds_to_answer
from tests.samples.manifests import a_job
from tests.waiting import until

OBJECT_BYTES = 1_400_000
"""Little less than etcd takes."""
MEMORY_LIMIT = 512 << 20
"""Of the chart."""


def outlasts(world: World, start: Starter, *, jobs: int, idle: int) -> None:
    """Have a tenant create large jobs and keep connections; another tenant's job must start."""
    victim, hostile = world.namespace, a_namespace(world.apiserver)
    operator = start("one")
    large = {"metadata": {"annotations": {"padding": "x" * OBJECT_BYTES}}}
    for number in range(jobs):
        manifest = a_job(f"large-{number}", suspend=True)
        manifest["metadata"]["namespace"] = hostile
        manifest["spec"].setdefault("trainer", {})["podTemplate"] = large
        world.apiserver.kubectl("-n", hostile, "create", "-f", "-", stdin=json.dumps(manifest))
    port = urlsplit(operator.url).port
    assert port is not None
    with crowding(port, silent=idle * 9 // 10, dripping=idle // 10) as drips:
        world.namespace = victim
        world.make_secret()
        world.upload_inputs()
        job = world.make_job()
        for path in ("/healthz", "/readyz", "/metrics"):
            drip(drips)
            assert seconds_to_answer(port, path) < 1
        until(lambda: bool(world.objects(kinds.DEPLOYMENT)), what="the pool's Deployment")
        run = str(world.status(job)["runId"])
        world.start_samplers(run)
        until(lambda: begins(world, run), what="the trainer of the other tenant")
        assert seconds_to_answer(port, "/readyz") < 1
    assert not operator.ended()
    process = operator.server.process
    assert process is not None
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    assert pages * 4096 < MEMORY_LIMIT


@pytest.mark.soak
def test_a_few_large_jobs_and_idle_connections_leave_the_operator_ready(
    world: World, start: Starter
) -> None:
    outlasts(world, start, jobs=4, idle=200)
