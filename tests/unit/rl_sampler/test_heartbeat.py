"""When an agent writes its registration."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rl_contracts.documents.sampler import SILENT_SECONDS, Sampler, SamplerState
from rl_sampler.completions.outages import Outages
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.shared_stores import SharedStores
from rl_sampler.heartbeat import BEAT_SECONDS, IDLE_BEAT_SECONDS, Heartbeat


class Registry:
    """A document store with a clock that the test moves."""

    def __init__(self) -> None:
        self.time, self.written = 1000.0, list[Sampler]()

    def now(self) -> float:
        return self.time

    def put(self, documents: list[Sampler]) -> None:
        self.written += documents


class Agent:
    """Its heartbeat, with counters that the test changes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.own, self.registry, self.counters = 500.0, Registry(), Counters()
        monkeypatch.setattr(time, "monotonic", lambda: self.own)
        problems, serving = Problems(), Serving()
        stores = SimpleNamespace(mongo=self.registry, samplers=self.registry)
        env = SimpleNamespace(pool="main", pod_name="pod", relay_port=None, pod_ip="")
        assignment = SimpleNamespace(sampler="run1.sampler.a", run="run1", env=env)
        self.heartbeat = Heartbeat(
            cast(Any, assignment),
            shared=SharedStores(cast(Any, stores), problems=problems),
            serving=serving,
            counters=self.counters,
            problems=problems,
            outages=Outages(serving=serving, problems=problems),
            scorers=[],
        )

    async def beat(self, seconds: float, *, store: float | None = None) -> bool:
        """Whether the beat after so many seconds writes; the store's clock may move otherwise."""
        self.own += seconds
        self.registry.time += seconds if store is None else store
        before = len(self.registry.written)
        await self.heartbeat._beat(SamplerState.STARTING)
        return len(self.registry.written) > before


async def test_an_unchanged_registration_is_written_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = Agent(monkeypatch)
    assert [await agent.beat(BEAT_SECONDS) for _ in range(5)] == [True, False, True, False, True]
    assert IDLE_BEAT_SECONDS + BEAT_SECONDS < SILENT_SECONDS


async def test_news_are_written_at_the_next_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(monkeypatch)
    await agent.beat(BEAT_SECONDS)
    agent.counters.groups_done += 1
    assert await agent.beat(BEAT_SECONDS)
    assert not await agent.beat(BEAT_SECONDS)


async def test_a_store_whose_clock_is_set_back_still_hears_of_the_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = Agent(monkeypatch)
    await agent.beat(BEAT_SECONDS)
    written = [await agent.beat(BEAT_SECONDS, store=step) for step in (-3600.0, 2.0, 2.0)]
    assert any(written[:2])
    assert agent.registry.written[-1].is_alive(agent.registry.time)
