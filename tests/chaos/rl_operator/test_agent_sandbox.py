"""Claims of an RLJob by agent-sandbox's own controller, on a real API server without nodes.

What these tests hold: the controller of v0.5.6 takes our objects, each claim gets a pod with the
label of our Service, the claim that follows an episode gets a pod of the warm pool that stood
ready, and the used pod goes with its claim. How long such a claim waits is a property of the test,
not a bar: controller, operator, API server and etcd share the machine with the test.

What they do not hold: no pod runs. The test says of each that it is Ready, and ends episodes, so a
pod's start costs nothing here.
"""

from __future__ import annotations

import queue
import statistics
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from rl_operator.kube import kinds, names
from rl_operator.kube.kinds import Key
from rl_operator.pools.used_pods import EPISODE_ENDED
from tests.contract.rl_operator.pools.test_sandboxes import (
    claims,
    ready,
    sandboxed,
    spare,
    with_sandboxes,
)
from tests.contract.rl_operator.world import World
from tests.kube import agent_sandbox
from tests.kube.apiserver import ApiServer, controller_manager
from tests.kube.sandbox_claims import ClaimWatch, Taken, percentile
from tests.waiting import until

__all__ = ["with_sandboxes"]

Raw = dict[str, Any]

PODS, SPARE = 4, 2
WARM = 20
CASES = ((1, 60), (20, 3))
"""Episodes that end at the same time, and how often."""
BUILD_SECONDS = 1800.0
"""Of the controller, where the machine has not built it yet."""

pytestmark = pytest.mark.timeout(BUILD_SECONDS)


@dataclass
class Nodes:
    """Says of each pod that it is Ready, as soon as it is there."""

    world: World
    made: queue.Queue[str] = field(default_factory=queue.Queue)
    seen: list[str] = field(default_factory=list)

    def see(self, pod: Raw) -> None:
        if (name := pod["metadata"]["name"]) not in self.seen:
            self.seen.append(name)
            self.made.put(name)

    def run(self) -> None:
        """Start pods until an empty name comes."""
        number = 0
        while name := self.made.get():
            address = f"10.9.{number // 250}.{number % 250 + 1}"
            status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
            self.set_status(name, status | {"conditions": [{"type": "Ready", "status": "True"}]})
            number += 1

    def end(self, name: str) -> None:
        """The episode of a pod has ended."""
        state = {"terminated": {"exitCode": EPISODE_ENDED}}
        server = {"name": "program", "image": "a", "imageID": "", "ready": False, "state": state}
        status = {"containerStatuses": [server | {"restartCount": 0}]}
        self.set_status(name, status | {"conditions": [{"type": "Ready", "status": "False"}]})

    def set_status(self, name: str, status: Raw) -> None:
        manifest = {"metadata": {"name": name, "namespace": self.world.namespace}, "status": status}
        self.world.cluster.merge(kinds.POD, manifest, subresource="status")


@dataclass
class Sandboxes:
    """A job whose pods the controller makes."""

    world: World
    nodes: Nodes
    watch: ClaimWatch

    def make_job(self, *, pods: int, spare_pods: int) -> Key:
        """A job all of whose pods are Ready."""
        job = ready(self.world).make_job(agent=sandboxed(pods=pods, sparePods=spare_pods))
        self.world.settle(job)
        self.await_pods(spare_pods)
        return job

    def await_pods(self, spare_pods: int) -> dict[str, Taken]:
        """The pods of all claims, by uid, once they and the warm pool's are Ready."""
        wanted = set(claims(self.world).values())

        def are_there() -> bool:
            (pool,) = self.world.objects(kinds.SANDBOX_WARM_POOL)
            count = pool.get("status", {}).get("readyReplicas", 0)
            return wanted <= self.watch.taken().keys() and count == spare_pods

        until(are_there, what="pods of all claims and of the warm pool", seen=self.watch.taken)
        taken = self.watch.taken()
        return {uid: taken[uid] for uid in wanted}

    def names(self) -> set[str]:
        """Of the pods that exist."""
        return {pod["metadata"]["name"] for pod in self.world.objects(kinds.POD)}

    def end_episodes(self, job: Key, count: int) -> set[str]:
        """Uids of the claims that the operator makes after so many episodes."""
        before = claims(self.world)
        taken = self.watch.taken()
        for uid in list(before.values())[:count]:
            self.nodes.end(taken[uid].pod)
        self.world.settle(job)
        after = claims(self.world)
        assert len(after) == len(before)
        return set(after.values()) - set(before.values())


@pytest.fixture
def sandboxes(
    with_sandboxes: ApiServer, world: World, api: client.ApiClient, tmp_path: Path
) -> Iterator[Sandboxes]:
    nodes = Nodes(world)
    controller = agent_sandbox.controller(
        with_sandboxes.kubeconfig, log=tmp_path / "controller.log"
    )
    watch = ClaimWatch(
        api, world.namespace, pods=f"{names.PROGRAMS_LABEL}=job-main", see_pod=nodes.see
    )
    starting = threading.Thread(target=nodes.run)
    collector = controller_manager(
        with_sandboxes, tmp_path, "--controllers=garbage-collector-controller"
    )
    with ExitStack() as stack:
        stack.enter_context(controller)
        stack.enter_context(collector)
        starting.start()
        stack.callback(starting.join)
        stack.callback(nodes.made.put, "")
        stack.enter_context(watch)
        yield Sandboxes(world, nodes, watch)


def test_each_claim_has_a_pod_and_the_next_one_takes_a_spare_pod(sandboxes: Sandboxes) -> None:
    job = sandboxes.make_job(pods=PODS, spare_pods=SPARE)
    first = sandboxes.await_pods(SPARE)
    assert len({each.pod for each in first.values()}) == len(first) == PODS
    stood = set(sandboxes.nodes.seen)
    assert spare(sandboxes.world) == SPARE
    assert len(stood) == PODS + SPARE
    (uid,) = sandboxes.end_episodes(job, 1)
    next_pod = sandboxes.await_pods(SPARE)[uid]
    assert next_pod.was_ready
    (used,) = first.keys() - set(claims(sandboxes.world).values())
    assert next_pod.pod in stood - {each.pod for each in first.values()}, "no pod serves twice"
    assert len(sandboxes.nodes.seen) == PODS + SPARE + 1, "a spare pod in its place"
    until(
        lambda: first[used].pod not in sandboxes.names(), what="the used pod to go with its claim"
    )
    assert len(sandboxes.names()) == PODS + SPARE


@pytest.mark.parametrize(("at_once", "rounds"), CASES)
def test_claims_after_episodes_take_pods_of_the_warm_pool(
    sandboxes: Sandboxes,
    at_once: int,
    rounds: int,
    record_property: Callable[[str, object], None],
) -> None:
    job = sandboxes.make_job(pods=at_once, spare_pods=WARM)
    seconds: list[float] = []
    for _ in range(rounds):
        uids = sandboxes.end_episodes(job, at_once)
        taken = sandboxes.await_pods(WARM)
        assert len(uids) == at_once
        assert all(taken[uid].was_ready for uid in uids), "no pod was started for a claim"
        seconds += [taken[uid].seconds for uid in uids]
    record_property("claims", len(seconds))
    record_property("median_seconds", round(statistics.median(seconds), 3))
    record_property("p99_seconds", round(percentile(seconds, 0.99), 3))
