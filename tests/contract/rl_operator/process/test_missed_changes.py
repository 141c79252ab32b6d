"""Changes that a watch misses before it expires: the next list shows them.

All tests share an operator, whose watches pass through a front. Each has a namespace of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.spec.resources import API_VERSION
from rl_operator.cache.cached_reader import REPAIR_SECONDS
from rl_operator.kube import kinds
from rl_operator.kube.kinds import Key, Kind
from tests.contract.rl_operator.processes import Process, Starter, behind, bring_up, holder
from tests.contract.rl_operator.world import World
from tests.examples import first
from tests.kube.api_front import ApiFront, fronting
from tests.kube.apiserver import ApiServer
from tests.waiting import until

PODS = 2
SOONER_SECONDS = REPAIR_SECONDS / 3
"""Shorter than half of REPAIR_SECONDS: the earliest live read would show what a watch missed."""


@pytest.fixture(scope="module")
def shared_front(with_trainer_kind: ApiServer) -> Iterator[ApiFront]:
    with fronting(with_trainer_kind) as opened:
        yield opened


@pytest.fixture(scope="module")
def operator(
    shared_front: ApiFront, rights: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Process]:
    """An operator behind the front."""
    folder = tmp_path_factory.mktemp("expired")
    starter = Starter(folder=folder, kubeconfig=behind(shared_front, rights, folder))
    try:
        operator = starter("expired")
        yield operator
        assert operator.complaints() == []
    finally:
        starter.stop()


@pytest.fixture
def front(world: World, shared_front: ApiFront, operator: Process) -> Iterator[ApiFront]:
    """The front before an operator that leads; its watches see everything again afterwards."""
    until(lambda: holder(world) == "expired", what="the operator to lead")
    yield shared_front
    blinded = tuple(shared_front.blinded)
    shared_front.blinded.clear()
    shared_front.swallowed.clear()
    for plural in blinded:
        shared_front.expire(plural)


def conditions_of(world: World, job: Key) -> list[tuple[str, str, str, str]]:
    return sorted(
        (condition["type"], condition["status"], condition["reason"], condition["message"])
        for condition in world.status(job)["conditions"]
    )


@pytest.mark.soak
def test_a_job_reaches_the_same_state_after_its_watch_has_expired(
    world: World, front: ApiFront
) -> None:
    spared = world.make_job("spared")  # stalls: there is no Secret
    until(lambda: world.condition_now(spared, "Stalled"), what="the spared job to stall")
    front.blind(kinds.RLJOB.plural)
    unseen = world.make_job("unseen")
    until(lambda: front.swallowed, what="the new job's event to be lost")
    front.expire(kinds.RLJOB.plural)
    until(lambda: world.condition_now(unseen, "Stalled"), what="the list to show the new job")
    assert conditions_of(world, unseen) == conditions_of(world, spared)


def deployment_of(world: World) -> dict[str, Any]:
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    return deployment


def a_shared_pool(world: World) -> None:
    spec = {"model": {"uri": "s3://models/tiny"}, "replicas": 1, "template": {}}
    world.apply(API_VERSION, kinds.SAMPLER_POOL.name, "shared", spec=spec)


def pool_status(world: World, name: str) -> dict[str, Any]:
    pool = world.cluster.get(kinds.SAMPLER_POOL, world.namespace, name)
    return dict(pool.get("status", {})) if pool is not None else {}


def its_pods_are_counted(world: World, job: Key) -> bool:
    return bool(pool_status(world, "job-main").get("ready") == PODS)


def remove(kind: Kind, name: str) -> Callable[[World], None]:
    def happens(world: World) -> None:
        world.apiserver.kubectl("-n", world.namespace, "delete", kind.plural, name, "--force")

    return happens


def samplers_are_ready(world: World) -> None:
    counts = dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas"), PODS)
    generation = deployment_of(world)["metadata"]["generation"]
    status = {"observedGeneration": generation, "availableReplicas": PODS, **counts}
    world.set_status("deployment", "job-main", status)


def a_sampler_breaks(world: World) -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "nobody has it"}
    container = {"name": "pytorch", "state": {"waiting": waiting}}
    world.set_pod("job-main-x-1", "Pending", container=container)


def its_trouble_is_told(world: World, job: Key) -> bool:
    return "nobody has it" in world.condition(job, "SamplersReady")["message"]


def training_operator_gives_up(world: World) -> None:
    failed = {"type": "Failed", "status": "True", "reason": "Failed", "message": "so it says"}
    world.set_status("pytorchjob", "job-1", {"conditions": [failed], "replicaStatuses": {}})


def a_failure_is_counted(world: World, job: Key) -> bool:
    return bool(world.status(job)["failures"] == 1)


@dataclass(frozen=True)
class Missed:
    """A change that a watch misses, and what the operator does once it sees it."""

    kind: Kind
    happens: Callable[[World], None]
    follows: Callable[[World, Key], bool]


MISSED = {
    "a pool is made": Missed(
        kinds.SAMPLER_POOL,
        a_shared_pool,
        lambda world, job: "conditions" in pool_status(world, "shared"),
    ),
    "a pool goes": Missed(
        kinds.SAMPLER_POOL,
        remove(kinds.SAMPLER_POOL, "job-main"),
        lambda world, job: bool(world.objects(kinds.SAMPLER_POOL)),
    ),
    "pods become available": Missed(kinds.DEPLOYMENT, samplers_are_ready, its_pods_are_counted),
    "a Deployment goes": Missed(
        kinds.DEPLOYMENT,
        remove(kinds.DEPLOYMENT, "job-main"),
        lambda world, job: bool(world.objects(kinds.DEPLOYMENT)),
    ),
    "a pod changes": Missed(kinds.POD, a_sampler_breaks, its_trouble_is_told),
    "a trainer's pod goes": Missed(
        kinds.POD,
        remove(kinds.POD, "job-1-worker-0"),
        lambda world, job: world.status(job)["trainer"].get("ready", 0) == 0,
    ),
    "an attempt fails": Missed(kinds.PYTORCH_JOB, training_operator_gives_up, a_failure_is_counted),
    "an attempt goes": Missed(
        kinds.PYTORCH_JOB,
        remove(kinds.PYTORCH_JOB, "job-1"),
        lambda world, job: bool(world.objects(kinds.PYTORCH_JOB)),
    ),
}


@pytest.mark.parametrize("missed", first(1, MISSED.values()), ids=MISSED.keys())
def test_change_missed_by_an_expired_watch_is_seen_in_the_next_list(
    world: World, front: ApiFront, missed: Missed
) -> None:
    job, _ = bring_up(world)
    trainer = world.cluster.get(kinds.PYTORCH_JOB, world.namespace, "job-1")
    assert trainer is not None
    world.start_pod("job-1-worker-0", of=trainer)
    until(lambda: world.status(job)["trainer"].get("ready") == 1, what="the trainer to be seen")
    front.blind(missed.kind.plural)
    missed.happens(world)
    until(lambda: front.swallowed, what="the event to be lost")
    assert not missed.follows(world, job)
    front.expire(missed.kind.plural)
    until(
        lambda: missed.follows(world, job),
        what="what follows",
        seconds=SOONER_SECONDS,
        seen=lambda: world.status(job),
    )
