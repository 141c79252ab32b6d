"""The turns of a job's life while the API server answers as on a bad day: the same turns, once."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rl_operator.kube import kinds, names
from rl_operator.kube.kinds import Key, Kind
from tests.chaos.rl_operator.test_storms import BURSTS, LEFT_ALONE
from tests.contract.rl_operator.jobs.test_elastic import place, remove_pods, size
from tests.contract.rl_operator.jobs.test_queue import QUEUED, decide, workload
from tests.contract.rl_operator.jobs.test_suspend import end_pod, suspend
from tests.contract.rl_operator.pools import test_shared_pools as shared
from tests.contract.rl_operator.processes import Process, Starter, begins, behind, grant, holder
from tests.contract.rl_operator.world import World
from tests.kube import kueue
from tests.kube.api_front import ApiFront, Fault
from tests.kube.apiserver import ApiServer
from tests.waiting import until

FAULTS = 60
PODS = ("job-main-x-1", "job-main-x-2")
QUEUE_SYSTEM = "rl-stormy"


@dataclass
class Storm:
    """Many requests of the operator's own client meet a fault of any kind, until all are spent."""

    left: int = FAULTS
    met: set[tuple[str, int]] = field(default_factory=set)
    chance: random.Random = field(default_factory=lambda: random.Random(11))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, method: str, path: str, agent: str) -> Fault | None:
        if "kopf" in agent or any(part in path for part in LEFT_ALONE):
            return None
        with self.lock:
            fault, methods = self.chance.choice(list(BURSTS.values()))
            if not self.left or method not in methods or self.chance.random() < 0.5:
                return None
            self.left -= 1
            self.met.add((method, fault.status))
            return fault


@pytest.fixture
def storm(front: ApiFront) -> Storm:
    made = Storm()
    front.fault = made
    return made


@pytest.fixture
def stormy(front: ApiFront, storm: Storm, rights: Path, tmp_path: Path) -> Iterator[Process]:
    """The operator in that storm."""
    starter = Starter(folder=tmp_path, kubeconfig=behind(front, rights, tmp_path))
    yield starter("stormy")
    starter.stop()


def spend(world: World, storm: Storm, operator: Process, keep: Callable[[], object]) -> None:
    """Give the operator something to write until the storm is over, and something to put right."""

    def spent() -> bool:
        keep()
        for deployment in world.objects(kinds.DEPLOYMENT):
            world.apiserver.kubectl(
                "-n",
                world.namespace,
                "label",
                "deployment",
                deployment["metadata"]["name"],
                f"{names.COMPONENT_LABEL}=drifted-{storm.left}",
                "--overwrite",
            )
        return storm.left == 0

    until(spent, what="all faults to be spent", seen=lambda: storm.left)

    def labels() -> set[str]:
        deployments = world.objects(kinds.DEPLOYMENT)
        return {
            deployment["metadata"]["labels"][names.COMPONENT_LABEL] for deployment in deployments
        }

    until(lambda: labels() == {"sampler"}, what="the drift to be put right", seen=labels)
    assert {status for _, status in storm.met} == {409, 422, 429, 500, 503}
    assert not operator.ended()


def named(world: World, kind: Kind) -> list[str]:
    return [manifest["metadata"]["name"] for manifest in world.objects(kind)]


def replicas(world: World) -> list[int]:
    return [deployment["spec"]["replicas"] for deployment in world.objects(kinds.DEPLOYMENT)]


def attempts(world: World, job: Key) -> list[str]:
    attempts = world.status(job).get("attempts", [])
    return [f"{attempt['attempt']} {attempt['result']}" for attempt in attempts]


def run_of(world: World, job: Key) -> str:
    until(lambda: world.status(job).get("runId"), what="the status")
    return str(world.status(job)["runId"])


def bring_up(world: World, job: Key, attempt: int) -> str:
    """Samplers and the trainer of an attempt are there; its run."""
    until(lambda: replicas(world) == [2], what="the pool's Deployment of 2 pods")
    run = run_of(world, job)
    world.start_samplers(run)
    name = f"job-{attempt}"

    def begun() -> bool:
        begins(world, run)
        return name in named(world, kinds.PYTORCH_JOB)

    until(begun, what=name)
    trainer = world.cluster.get(kinds.PYTORCH_JOB, world.namespace, name)
    assert trainer is not None
    world.start_pod(f"{name}-worker-0", of=trainer)
    return run


def stops(world: World, *pods: str, holds: Callable[[], bool] = lambda: True) -> None:
    """The trainer's object goes, the pool is emptied, and then the pods end one by one."""
    until(lambda: replicas(world) == [0], what="the pool to be taken to 0")
    until(lambda: not named(world, kinds.PYTORCH_JOB), what="the trainer to be deleted")
    for pod in pods:
        assert holds(), f"given back while {pod} is there"
        end_pod(world, pod)


def test_job_is_suspended_and_resumed_despite_failed_requests(
    world: World, storm: Storm, stormy: Process
) -> None:
    until(lambda: holder(world) == "stormy", what="it to lead")
    world.make_secret()
    world.upload_inputs()
    job = world.make_job()
    run = bring_up(world, job, 1)
    suspend(world, job, suspended=True)

    def untold() -> bool:
        return not world.condition_now(job, "Suspended")

    stops(world, "job-1-worker-0", *PODS, holds=untold)
    until(lambda: world.condition_now(job, "Suspended"), what="the suspension")
    assert attempts(world, job) == ["1 Suspended"]
    suspend(world, job, suspended=False)
    bring_up(world, job, 2)
    spend(world, storm, stormy, lambda: begins(world, run))
    assert attempts(world, job) == ["1 Suspended", "2 Active"]
    assert (world.status(job)["failures"], named(world, kinds.PYTORCH_JOB)) == (0, ["job-2"])


@pytest.fixture
def queueing(
    with_kueue: ApiServer, queue: World, front: ApiFront, storm: Storm, tmp_path: Path
) -> Iterator[Process]:
    granted = grant(with_kueue, tmp_path, "kueue.enabled=true", system=QUEUE_SYSTEM)
    starter = Starter(folder=tmp_path, kubeconfig=behind(front, granted, tmp_path))
    here = ("--namespace", QUEUE_SYSTEM, "--watch-namespace", queue.namespace)
    yield starter("stormy", "--kueue", *here)
    starter.stop()


def holds_quota(world: World) -> bool:
    return kueue.holds_quota(world.cluster.get(kinds.WORKLOAD, world.namespace, "rljob-job"))


def test_evicted_job_releases_its_quota_last(queue: World, storm: Storm, queueing: Process) -> None:
    job = queue.make_job(scheduling=QUEUED)
    until(lambda: named(queue, kinds.WORKLOAD), what="the Workload")
    assert named(queue, kinds.POD) == []
    decide(queue, kueue.admitted(workload(queue)))
    run = bring_up(queue, job, 1)
    decide(queue, kueue.evicted(workload(queue)))
    stops(queue, "job-1-worker-0", *PODS, holds=lambda: holds_quota(queue))
    until(lambda: not holds_quota(queue), what="the quota to be given back")
    decide(queue, kueue.admitted(workload(queue)))
    bring_up(queue, job, 2)
    spend(queue, storm, queueing, lambda: begins(queue, run))
    assert attempts(queue, job) == ["1 Suspended", "2 Active"]
    assert queue.status(job)["failures"] == 0

    queue.apiserver.kubectl("-n", queue.namespace, "delete", "rljob", "job", "--wait=false")
    until(lambda: not named(queue, kinds.PYTORCH_JOB), what="the trainer to be deleted")
    for pod in ("job-2-worker-0", *PODS):
        assert named(queue, kinds.RLJOB) == ["job"], "its Workload goes with it"
        end_pod(queue, pod)
    until(lambda: not named(queue, kinds.RLJOB), what="the job to go")


def test_shared_pool_is_assigned_to_the_next_job(
    world: World, storm: Storm, stormy: Process
) -> None:
    until(lambda: holder(world) == "stormy", what="it to lead")
    shared.make_inputs(world)
    shared.make_pool(world)
    lifecycle: dict[str, Any] = {"pendingDeadlineSeconds": 3600}
    jobs = [
        world.make_job(name, samplers=shared.GROUPS, lifecycle=lifecycle)
        for name in ("first", "second")
    ]

    def serves(job: Key) -> bool:
        """The kubelet and the Deployment's controller work; whether the job's trainer is there."""
        if world.objects(kinds.DEPLOYMENT):
            shared.control(world)
        world.beat()
        runs = {
            sampler_pod["metadata"]["labels"][names.RUN_LABEL]
            for sampler_pod in shared.sampler_pods(world)
        }
        assert len(runs) <= 1, shared.pool(world)["status"]
        return f"{job.name}-1" in named(world, kinds.PYTORCH_JOB)

    def holds() -> str:
        return str((shared.pool(world).get("status", {}).get("assignment") or {}).get("job", ""))

    until(holds, what="somebody to get the pool")
    first = next(job for job in jobs if job.name == holds())
    second = next(job for job in jobs if job != first)
    until(lambda: serves(first), what="the first trainer")
    shared.succeed(world, first)
    until(lambda: serves(second), what="the second trainer")
    assert world.condition_now(first, "Complete")
    spend(world, storm, stormy, lambda: serves(second))
    assert (holds(), replicas(world)) == (second.name, [1])


def test_elastic_trainer_shrinks_despite_failed_requests(
    world: World, storm: Storm, stormy: Process
) -> None:
    until(lambda: holder(world) == "stormy", what="it to lead")
    world.make_secret()
    world.upload_inputs()
    elastic = {"replicas": 2, "elastic": {"minReplicas": 1, "maxReplicas": 3}}
    # An attempt waits for nodes for half of it.
    job = world.make_job(trainer=elastic, lifecycle={"pendingDeadlineSeconds": 60})
    until(lambda: replicas(world) == [2], what="the pool's Deployment of 2 pods")
    run = run_of(world, job)
    world.start_samplers(run)
    until(lambda: begins(world, run), what="the first attempt")
    assert size(world, 1) == (2, "2")
    place(world, 1, fits=[True, False])

    def given_up() -> bool:
        begins(world, run)
        return attempts(world, job) == ["1 Ignored"]

    until(given_up, what="the attempt to be given up")
    remove_pods(world, 1, count=2)

    def next_one() -> bool:
        begins(world, run)
        return "job-2" in named(world, kinds.PYTORCH_JOB)

    until(next_one, what="the second attempt")
    assert size(world, 2) == (1, "1")
    place(world, 2, fits=[True])
    spend(world, storm, stormy, lambda: begins(world, run))
    assert attempts(world, job) == ["1 Ignored", "2 Active"]
    assert world.status(job)["failures"] == 0
