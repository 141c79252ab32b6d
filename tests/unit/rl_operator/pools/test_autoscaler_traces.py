"""The autoscaler in a simulated run: it finds a size and stays there, whatever the noise."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from rl_contracts.spec.pool_status import ScaleStatus
from rl_contracts.spec.workers import Autoscaling
from rl_operator.kube.timestamps import format_time
from rl_operator.pools.autoscaler import Evidence, Observation, advise, observe
from tests.examples import examples

TICK = 2.5
LOOK_SECONDS = 5.0


@dataclass
class Simulation:
    """An asynchronous run: admission by staleness, slots per pod, batched decoding, slow starts."""

    wanted: Autoscaling
    prompts_per_step: int = 64
    max_staleness: int = 2
    slots_per_pod: int = 16
    start_seconds: float = 90.0
    train_seconds: float = 20.0
    pod_groups_per_second: float = 0.5
    noise: float = 0.0
    seed: int = 0
    now: float = 0.0
    replicas: int = 0
    changes: list[ScaleStatus] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.replicas = self.wanted.min_replicas
        self.starts = [0.0] * self.replicas
        self.step, self.finished, self.in_flight = 0, 0.0, 0
        self.waited = self.trained = self.left = self.tokens_per_second = 0.0
        self.last = (0.0, 0.0)
        self.evidence: Evidence | None = None

    def run(self, seconds: float, *, change: Callable[[Simulation], None] | None = None) -> None:
        """Let time pass; ``change`` is applied at half of it."""
        end, half, last_look = self.now + seconds, self.now + seconds / 2, self.now
        while self.now < end:
            if change is not None and self.now >= half:
                change(self)
                change = None
            self._tick()
            if self.now - last_look >= LOOK_SECONDS:
                self._look()
                last_look = self.now

    def needed(self) -> float:
        """Pods that keep the trainer just busy."""
        return self.prompts_per_step / self.train_seconds / self.pod_groups_per_second

    def turns(self) -> int:
        """How often growing and shrinking took turns."""
        signs = [change.after > change.before for change in self.changes]
        return sum(before != after for before, after in itertools.pairwise(signs))

    def _tick(self) -> None:
        self.now += TICK
        admitted = (self.max_staleness + 1) * self.prompts_per_step
        self.in_flight = admitted - math.floor(self.finished)
        serving = self._serving()
        running = min(self.in_flight, serving * self.slots_per_pod)
        # Decoding is batched: a pod with half of its slots in use is nearly as fast per pod.
        use = running / max(serving * self.slots_per_pod, 1)
        rate = serving * self.pod_groups_per_second * min(1.0, 1.6 * use)
        room = max(0.0, admitted - self.finished)
        jitter = 1.0 + self.noise * self.draw.uniform(-1, 1)
        made = min(rate * jitter * TICK, room)
        self.finished += made
        self.tokens_per_second += (100.0 * made / TICK - self.tokens_per_second) / 4
        self.running = running
        if self.left > 0:
            self.left -= TICK
            self.trained += TICK
            if self.left <= 0:
                self.step += 1
                self.last = (self.waited, self.trained)
                self.waited = self.trained = 0.0
        elif self.finished >= self.prompts_per_step:
            self.finished -= self.prompts_per_step
            self.left = self.train_seconds * (1.0 + self.noise * self.draw.uniform(-1, 1))
        else:
            self.waited += TICK

    def _serving(self) -> int:
        return sum(self.now >= start + self.start_seconds for start in self.starts)

    def _look(self) -> None:
        serving = self._serving()
        seen = Observation(
            now=self.now,
            replicas=self.replicas,
            serving=serving,
            running_groups=self.running,
            slots=serving * self.slots_per_pod,
            backlog=self.in_flight,
            tokens_per_second=self.tokens_per_second,
            step=self.step,
            wait_seconds=self.last[0],
            train_seconds=self.last[1],
            staleness_slack=0 if self.finished > self.prompts_per_step else 1,
        )
        self.evidence = observe(self.evidence, seen)
        advice = advise(seen, self.evidence, self.wanted, self.changes[-5:])
        if advice.replicas == self.replicas:
            return
        self.changes.append(
            ScaleStatus(
                time=format_time(self.now),
                before=self.replicas,
                after=advice.replicas,
                reason=advice.reason,
                tokens_per_second=self.evidence.tokens_per_second if self.evidence else 0.0,
            )
        )
        more = advice.replicas - self.replicas
        self.starts = [*self.starts, *([self.now] * more)][: advice.replicas]
        self.replicas = advice.replicas


def builtin(low: int = 1, high: int = 64) -> Autoscaling:
    return Autoscaling(mode="Builtin", min_replicas=low, max_replicas=high)


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("rate", [0.1, 0.25, 1.0, 4.0])
def test_autoscaler_finds_a_size_and_keeps_it(rate: float, noise: float) -> None:
    simulation = Simulation(builtin(), pod_groups_per_second=rate, noise=noise, seed=1)
    simulation.run(2 * 3600)
    settled = len(simulation.changes)
    assert simulation.needed() * 0.8 <= simulation.replicas <= simulation.needed() * 1.8 + 1
    assert simulation.turns() <= 1
    simulation.run(6 * 3600)
    assert len(simulation.changes) <= settled + 1, simulation.changes


def test_longer_answers_bring_more_pods_and_shorter_ones_fewer() -> None:
    simulation = Simulation(builtin(), noise=0.1)
    simulation.run(3600)
    first = simulation.replicas
    simulation.pod_groups_per_second /= 3
    simulation.run(2 * 3600)
    grown = simulation.replicas
    assert grown >= 2 * first
    simulation.pod_groups_per_second *= 3
    simulation.run(6 * 3600)
    assert simulation.replicas <= grown / 2
    assert simulation.turns() <= 3, simulation.changes


def test_growing_is_fast_and_shrinking_slow() -> None:
    simulation = Simulation(builtin(), pod_groups_per_second=0.2)
    simulation.run(3600)
    assert simulation.replicas >= 0.8 * simulation.needed()
    times = [change.time for change in simulation.changes if change.after < change.before]
    assert len(times) <= 1


@settings(deadline=None, max_examples=examples(15), phases=[Phase.explicit, Phase.generate])
@given(
    rate=st.floats(0.05, 5.0),
    train=st.floats(5.0, 120.0),
    start=st.floats(10.0, 600.0),
    noise=st.floats(0.0, 0.5),
    staleness=st.integers(0, 8),
    later=st.floats(0.3, 3.0),
    seed=st.integers(0, 1000),
)
@example(  # six turns while a size that was too small was tried again after half an hour
    rate=1.3127923273337723,
    train=31.103874398115593,
    start=280.3114150737754,
    noise=0.2706133260306233,
    staleness=0,
    later=1.4016709844368103,
    seed=871,
)
def test_no_trace_flaps(
    rate: float,
    train: float,
    start: float,
    noise: float,
    staleness: int,
    later: float,
    seed: int,
) -> None:
    simulation = Simulation(
        builtin(high=32),
        pod_groups_per_second=rate,
        train_seconds=train,
        start_seconds=start,
        noise=noise,
        max_staleness=staleness,
        seed=seed,
    )

    def change(simulation: Simulation) -> None:
        simulation.pod_groups_per_second *= later

    simulation.run(4 * 3600, change=change)
    assert all(1 <= change.after <= 32 for change in simulation.changes)
    assert simulation.turns() <= 4, simulation.changes


REPLAYED = {
    "conversation": (
        232,
        290,
        251,
        210,
        292,
        307,
        280,
        285,
        243,
        227,
        255,
        229,
        234,
        225,
        280,
        290,
        276,
        250,
        238,
        200,
        232,
        219,
        183,
        168,
        172,
        165,
        166,
        149,
        126,
        114,
        130,
        135,
        134,
        148,
        169,
        159,
        144,
        205,
        225,
        223,
        221,
        191,
        180,
        203,
        190,
        203,
        203,
        278,
        274,
        281,
        256,
        266,
        235,
        272,
        276,
        282,
        279,
        283,
    ),
    "code": (
        23,
        27,
        35,
        26,
        20,
        27,
        38,
        28,
        26,
        25,
        24,
        25,
        27,
        26,
        26,
        26,
        28,
        25,
        24,
        27,
        29,
        23,
        25,
        27,
        26,
        41,
        29,
        30,
        30,
        23,
        30,
        27,
        25,
        27,
        26,
        28,
        33,
        37,
    ),
}
"""Mean tokens of a service's answers, minute by minute: Azure's LLM inference trace of 2023 (CC-BY;
Patel et al., Splitwise, ISCA 2024)."""


@pytest.mark.parametrize(("slower", "turns"), [(1, 0), (5, 4)], ids=["as recorded", "in 5 h"])
@pytest.mark.parametrize("trace", REPLAYED)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_replayed_trace_does_not_flap(trace: str, slower: int, turns: int, seed: int) -> None:
    """The load of the first halves and doubles: slowed down, a pool follows it once."""
    lengths = REPLAYED[trace]
    mean = sum(lengths) / len(lengths)
    simulation = Simulation(builtin(high=32), noise=0.2, seed=seed)
    rate = simulation.pod_groups_per_second
    for tokens in lengths:
        simulation.pod_groups_per_second = rate * mean / tokens
        simulation.run(60 * slower)
    assert simulation.turns() <= turns, simulation.changes
    assert all(
        1 <= change.after <= 10 for change in simulation.changes
    )  # 9.5 at the most are needed
    assert {change.reason for change in simulation.changes} <= {"TrainerWaits", "SamplersIdle"}
