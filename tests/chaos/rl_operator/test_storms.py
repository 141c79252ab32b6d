"""A burst of refusals, conflicts and lost answers of the API server leads to the same rest."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rl_operator.kube import kinds
from tests.contract.rl_operator.processes import Starter, begins, behind, bring_up, holder
from tests.contract.rl_operator.world import World
from tests.kube.api_front import ApiFront, Fault
from tests.waiting import until

FAULTS = 24
WRITES = ("POST", "PUT", "PATCH", "DELETE")
BURSTS: dict[str, tuple[Fault, tuple[str, ...]]] = {
    "conflicts": (Fault(409), WRITES),
    "refusals": (Fault(422), WRITES),
    "too many requests": (Fault(429), (*WRITES, "GET")),
    "errors": (Fault(500), (*WRITES, "GET")),
    "errors of what was done": (Fault(500, done=True), WRITES),
    "no answer from the server behind": (Fault(503, done=True), (*WRITES, "GET")),
}
LEFT_ALONE = ("leases", "secrets")
"""Leadership has tests of its own, and a Secret that may not be read is a state of its own."""


@dataclass
class Burst:
    """Half of the requests of the operator's own client meet a fault, until all are spent."""

    fault: Fault
    methods: tuple[str, ...]
    left: int = FAULTS
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, method: str, path: str, agent: str) -> Fault | None:
        if (
            method not in self.methods
            or "kopf" in agent
            or any(part in path for part in LEFT_ALONE)
        ):
            return None
        with self.lock:
            if not self.left or self.chance.random() < 0.5:
                return None
            self.left -= 1
            return self.fault


@pytest.fixture
def starter(front: ApiFront, rights: Path, tmp_path: Path) -> Iterator[Starter]:
    made = Starter(folder=tmp_path, kubeconfig=behind(front, rights, tmp_path))
    yield made
    made.stop()


def rest(world: World) -> dict[str, list[str]]:
    """The objects that exist, regardless of who created them and how often."""
    made = (kinds.SAMPLER_POOL, kinds.DEPLOYMENT, kinds.PYTORCH_JOB, kinds.NETWORK_POLICY)
    names = {kind.name: [raw["metadata"]["name"] for raw in world.objects(kind)] for kind in made}
    (job,) = world.objects(kinds.RLJOB)
    status = job["status"]
    wrong = [
        condition["type"]
        for condition in status["conditions"]
        if condition["type"] in ("Stalled", "Failed")
    ]
    return {
        **names,
        "attempts": [f"{attempt['attempt']} {attempt['result']}" for attempt in status["attempts"]],
        "wrong": wrong,
    }


AT_REST = {
    "SamplerPool": ["job-main"],
    "Deployment": ["job-main"],
    "PyTorchJob": ["job-1"],
    "NetworkPolicy": ["job"],
    "attempts": ["1 Active"],
    "wrong": [],
}


@pytest.mark.parametrize("burst", [Burst(*burst) for burst in BURSTS.values()], ids=BURSTS.keys())
def test_failed_requests_lead_to_the_same_final_state(
    world: World, front: ApiFront, starter: Starter, burst: Burst
) -> None:
    operator = starter("stormy")
    until(lambda: holder(world) == "stormy", what="it to lead")
    front.fault = burst
    _, run = bring_up(world)

    def rests() -> bool:
        begins(world, run)  # samplers that fell silent would be news
        world.apiserver.kubectl(  # something to write until the faults are spent
            "-n",
            world.namespace,
            "label",
            "deployment",
            "job-main",
            f"rl-operator.io/component=drifted-{burst.left}",
            "--overwrite",
        )
        return burst.left == 0

    until(rests, what="all faults to be spent", seen=lambda: burst.left)
    until(lambda: rest(world) == AT_REST, what="the rest", seen=lambda: rest(world))

    def labels() -> list[str]:
        (pods,) = world.objects(kinds.DEPLOYMENT)
        return [pods["metadata"]["labels"]["rl-operator.io/component"]]

    until(lambda: labels() == ["sampler"], what="the drift to be put right", seen=labels)
    assert not operator.ended()
