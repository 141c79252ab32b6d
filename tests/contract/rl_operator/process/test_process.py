"""The operator's process with no more rights than the chart gives: watches, leadership, signals."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_operator.kube import kinds
from tests.contract.rl_operator.processes import (
    Process,
    Starter,
    begins,
    bring_up,
    grant,
    holder,
)
from tests.contract.rl_operator.world import World
from tests.waiting import HUNG_SECONDS, until


def test_job_starts_with_only_the_rights_of_the_chart(world: World, start: Starter) -> None:
    operator = start("first")
    job, _ = bring_up(world)

    def event_reasons() -> set[str]:
        return {event["reason"] for event in world.objects(kinds.EVENT)}

    # Events are written beside the reconcile that they tell of, after its objects.
    until(
        lambda: {"PoolCreated", "AttemptStarted"} <= event_reasons(),
        what="the Events",
        seen=event_reasons,
    )
    world.make_job(lifecycle={"dataPolicy": "Delete"})

    def held() -> bool:
        manifest = world.cluster.get(kinds.RLJOB, job.namespace, job.name)
        return manifest is not None and bool(manifest["metadata"].get("finalizers"))

    until(held, what="the finalizer")
    arguments = (
        "-n",
        job.namespace,
        "delete",
        "rljob",
        job.name,
        f"--timeout={HUNG_SECONDS - 10:.0f}s",
    )
    world.apiserver.kubectl("-n", job.namespace, "delete", "pod", "--all", "--force")
    world.apiserver.kubectl(*arguments)
    assert operator.complaints() == []


@pytest.mark.soak
def test_kopf_writes_nothing(world: World, start: Starter) -> None:
    start("quiet")
    job = world.make_job()  # stalls: there is no Secret
    until(lambda: world.condition_now(job, "Stalled"), what="the job to stall")
    manifest = world.cluster.get(kinds.RLJOB, job.namespace, job.name)
    assert manifest is not None
    ours = [key for key in manifest["metadata"].get("annotations", {}) if "kopf" in key]
    assert ours == []
    assert "finalizers" not in manifest["metadata"]
    managers = {managed_field["manager"] for managed_field in manifest["metadata"]["managedFields"]}
    assert managers == {"kubectl-client-side-apply", "rl-operator-status"}


@pytest.mark.soak
def test_stopped_process_posts_its_queued_events(world: World, start: Starter) -> None:
    operator = start("eventful")
    job = world.make_job()
    until(lambda: world.condition_now(job, "Stalled"), what="the job to stall")
    operator.server.stop(signal.SIGTERM)
    reasons = [event["reason"] for event in world.objects(kinds.EVENT)]
    assert reasons == [world.condition(job, "Stalled")["reason"]]


@pytest.mark.soak
def test_stopped_leader_releases_its_lease_at_once(world: World, start: Starter) -> None:
    first = start("stopped")
    until(lambda: holder(world) == "stopped", what="the first to lead")
    assert first.server.process is not None
    process = first.server.process
    first.server.stop(signal.SIGTERM)
    assert process.returncode == 0
    assert holder(world) == ""
    start(
        "next"
    )  # how soon it takes what nobody holds: tests/unit/rl_operator/process/test_leadership.py
    until(lambda: holder(world) == "next", what="the next to lead")


def test_a_process_serves_its_metrics(world: World, start: Starter) -> None:
    operator = start("measured")
    job = world.make_job()
    until(lambda: world.condition_now(job, "Stalled"), what="the job to stall")
    counted = (
        "rl_operator_queue_seconds_count",
        "rl_operator_leader",
        'rl_operator_reconcile_seconds_count{kind="RLJob"}',
        "process_resident_memory_bytes",
        "process_start_time_seconds",
        'rl_operator_reconciles_total{kind="RLJob",result="ok"}',
        'rl_operator_api_writes_total{kind="RLJob",verb="apply"}',
        'rl_operator_api_requests_total{kind="RLJob",status="200",verb="list"}',
    )

    def missing() -> list[str]:
        metrics = operator.metrics()
        return [name for name in counted if metrics.get(name, 0) <= 0]

    until(lambda: not missing(), what="all counts", seen=missing)
    assert operator.metrics()["rl_operator_queue_length"] >= 0

    def watched() -> set[str]:
        names = (metric for metric in operator.metrics() if "watch_silence" in metric)
        return {name.split('"')[1].rpartition("/")[2] for name in names}

    wanted = {"rljobs", "samplerpools", "pytorchjobs", "deployments", "pods"}
    until(lambda: watched() == wanted, what="all watches to be heard of", seen=watched)

    def lines_of_job() -> list[dict[str, str]]:
        return [
            line for line in operator.lines() if line.get("job") == f"{job.namespace}/{job.name}"
        ]

    until(lambda: "phase Stalled" in [line["message"] for line in lines_of_job()], what="the line")
    assert all("attempt" in line and "object" in line for line in lines_of_job())


def reads(operator: Process) -> tuple[float, float]:
    """Reads of the API server except of Leases, and reconciles of jobs, so far."""
    metrics = operator.metrics()
    start = "rl_operator_api_requests_total{"
    asked = (name for name in metrics if name.startswith(start) and 'kind="Lease"' not in name)
    read = sum(metrics[name] for name in asked if 'verb="get"' in name or 'verb="list"' in name)
    return read, metrics['rl_operator_reconciles_total{kind="RLJob",result="ok"}']


@pytest.fixture
def confined(world: World, tmp_path: Path) -> Iterator[Process]:
    """An operator that watches one namespace, with rights there alone."""
    system = f"{world.namespace}-system"
    only = f"watchNamespaces={{{world.namespace}}}"
    granted = grant(world.apiserver, tmp_path, only, system=system)
    starter = Starter(folder=tmp_path, kubeconfig=granted)
    yield starter("confined", "--namespace", system, "--watch-namespace", world.namespace)
    starter.stop()


def test_a_running_job_at_rest_is_reconciled_without_reads(world: World, confined: Process) -> None:
    operator = confined
    _, run = bring_up(world)
    readings: list[tuple[float, float]] = []

    def rests() -> bool:
        """Two reconciles passed without a read."""
        begins(world, run)  # samplers that fell silent would be news
        readings.append(reads(operator))
        same = [reconciles for read, reconciles in readings if read == readings[-1][0]]
        return same[-1] - same[0] >= 2

    until(rests, what="looks without reads", seen=lambda: readings[-5:])
    world.apiserver.kubectl("-n", world.namespace, "delete", "deployment", "job-main")
    until(lambda: bool(world.objects(kinds.DEPLOYMENT)), what="the deletion to be put right")
    assert operator.complaints() == []


@pytest.mark.soak
def test_a_silent_watch_ends_the_process(world: World, start: Starter) -> None:
    operator = start("silent", "--watch-silence-seconds", "1", wait=False)
    until(operator.ended, what="the process to end")
    assert operator.server.process is not None
    assert operator.server.process.returncode == 1
    (why,) = operator.complaints()
    assert why.startswith("watchdog ended: the watches of")
    assert not [line for line in operator.lines() if "traceback" in line]
