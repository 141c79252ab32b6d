"""A look by the clock is spared only while it would find what the last one found."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, cast

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_contracts.documents.run import Outcome
from rl_contracts.documents.sampler import SILENT_SECONDS, SamplerState
from rl_contracts.spec.resources import SamplerPoolSpec
from rl_contracts.spec.status import SamplerPoolStatus
from rl_contracts.stores.overview import BEATING, SAMPLING, Overview
from rl_operator.apply.unchanged_check import Source, Stillness, of_job, of_pool
from rl_operator.attempts.ends import seconds_left
from rl_operator.attempts.lifecycle import decide
from rl_operator.cache.cached_reader import Looks
from rl_operator.kube.conditions import Stall
from rl_operator.kube.kinds import Key
from rl_operator.kube.timestamps import format_time
from rl_operator.kueue.admission import Hold
from rl_operator.state.decisions import Begin, Ended, Wait
from rl_operator.state.snapshot import Pool, PoolSnapshot
from rl_operator.status.status_input import StatusInput
from tests.documents import a_run, a_sampler
from tests.unit.rl_operator.builders import (
    NOW,
    RUN,
    a_job_object,
    a_meta,
    a_pod,
    a_reading,
    a_run_document,
    a_snapshot,
    a_spec,
    a_view,
)

KEY = Key("RLJob", "ns", "job")


class World:
    """What a look is made from."""

    def __init__(self) -> None:
        self.is_same, self.now, self.gist = True, 0.0, b"gist"
        self.asked: list[Source] = []
        self.still = Stillness(cast(Looks, self), gist=self.told, clock=lambda: self.now)

    def same(self, key: Key) -> bool:
        return self.is_same

    def told(self, source: Source) -> bytes:
        self.asked.append(source)
        return self.gist

    def note(self, gist: bytes = b"gist") -> None:
        self.still.note(KEY, a_job_object(), a_reading(gist=gist), seconds=60.0)


ENDS: dict[str, tuple[Callable[[World], object], bool]] = {
    "nothing": (lambda world: None, True),
    "time": (lambda world: setattr(world, "now", 59.9), True),
    "a decision is due by the clock": (lambda world: setattr(world, "now", 60.0), False),
    "an object has changed": (lambda world: setattr(world, "is_same", False), False),
    "the run has changed": (lambda world: setattr(world, "gist", b"other"), False),
    "the store does not answer": (lambda world: setattr(world, "gist", b""), False),
    "a look": (lambda world: world.still.forget(KEY), False),
    "a look that did not know": (lambda world: world.note(gist=b""), False),
}


@pytest.mark.parametrize(("change", "holds"), ENDS.values(), ids=ENDS.keys())
def test_any_change_ends_it(change: Callable[[World], object], holds: bool) -> None:
    world = World()
    assert not world.still.holds(KEY)
    world.note()
    change(world)
    assert world.still.holds(KEY) is holds
    assert set(world.asked) <= {Source("ns", "rl-operator-stores", RUN)}


RUNNING = Wait(why="Running")
QUEUED = {"provider": "Kueue", "queueName": "q"}
JOBS: dict[str, tuple[dict[str, Any], bool]] = {
    "it runs": ({}, True),
    "it waits": ({"decision": Wait(why="Inputs")}, False),
    "it begins": ({"decision": Begin(attempt=2)}, False),
    "it is over": ({"decision": None}, False),
    "it is stalled": ({"stall": Stall(reason="X", message="x")}, False),
    "something cannot be made for now": ({"blocked_reason": "a webhook"}, False),
    "its queue holds it back": ({"hold": Hold(reason="X", message="x")}, False),
    "a queue may hold it back": (
        {"snapshot": a_snapshot(job=a_job_object(scheduling=QUEUED))},
        False,
    ),
    "its spec cannot be read": (
        {"snapshot": a_snapshot(job=dataclasses.replace(a_job_object(), spec=None))},
        False,
    ),
}


@pytest.mark.parametrize(("changes", "rests"), JOBS.values(), ids=JOBS.keys())
def test_a_job_that_runs_rests(changes: dict[str, Any], rests: bool) -> None:
    values: dict[str, Any] = {"snapshot": a_snapshot(), "decision": RUNNING, "now": NOW}
    status_input = StatusInput(reading=a_reading(), **{**values, **changes})
    assert (of_job(status_input, a_view()) > 0) is rests


@given(
    active=st.none() | st.integers(1, 500),
    progress=st.integers(60, 500),
    ages=st.tuples(*[st.floats(0, 400)] * 3),
    store=st.floats(-1000, 1000),
    ended=st.booleans(),
)
def test_until_then_the_clock_decides_nothing(
    active: int | None, progress: int, ages: tuple[float, float, float], store: float, ended: bool
) -> None:
    since, started, made = (NOW - age for age in ages)
    lifecycle = {"activeDeadlineSeconds": active, "progressDeadlineSeconds": progress}
    outcome = Outcome(kind="Failed", reason="X", message="x") if ended else None
    status = a_view().status.model_copy(update={"active_since": format_time(since)})
    context = a_view(
        status=status,
        lifecycle=a_spec(lifecycle={k: v for k, v in lifecycle.items() if v}).lifecycle,
        pods=(a_pod(started_at=started),),
        run=a_run_document(progress_at=made, heartbeat_at=made, outcome=outcome),
        store_now=NOW + store,
    )

    def after(seconds: float) -> object:
        return decide(
            dataclasses.replace(context, now=NOW + seconds, store_now=NOW + store + seconds)
        )

    left = seconds_left(context)
    if left > 0.01:
        assert decide(context) == RUNNING
        assert after(min(left, 1e6) - 0.01) == RUNNING
    if not ended and math.isfinite(left) and left > 0:
        assert isinstance(after(left + 0.01), Ended)


def a_pool_snapshot(*pods: str, **spec: Any) -> PoolSnapshot:
    template = {"autoscaling": {"minReplicas": 1, **spec.pop("autoscaling", {})}}
    parsed = SamplerPoolSpec.model_validate({"job": "job", "template": template, **spec})
    pool = Pool(meta=a_meta("p"), spec=parsed, spec_error="", status=SamplerPoolStatus())
    found = tuple(a_pod("sampler", name=pod) for pod in pods)
    return PoolSnapshot(
        key=Key("SamplerPool", "ns", "p"), pool=pool, job=a_job_object(), pods=found
    )


BUILTIN = {"mode": "Builtin", "minReplicas": 1, "maxReplicas": 4}
SHARED = {"job": None, "model": {"uri": "s3://rl-data/models/m"}}
POOLS: dict[str, tuple[PoolSnapshot, bool]] = {
    "all are heard of": (a_pool_snapshot("a"), True),
    "one is not": (a_pool_snapshot("a", "b"), False),
    "it is scaled by its looks": (a_pool_snapshot("a", autoscaling=BUILTIN), False),
    "jobs share it": (a_pool_snapshot("a", **SHARED), False),
}


@pytest.mark.parametrize(("snapshot", "rests"), POOLS.values(), ids=POOLS.keys())
def test_a_pool_rests_while_all_of_its_pods_are_heard_of(
    snapshot: PoolSnapshot, rests: bool
) -> None:
    reading = a_reading(samplers=(a_sampler("s", pod="a"),))
    assert of_pool(snapshot, reading) == (math.inf if rests else 0.0)


NUMBERS = dict.fromkeys({*BEATING, *SAMPLING} - {"heartbeat_at"}, 17)


def an_overview(run: dict[str, Any], sampler: dict[str, Any], *more: str) -> Overview:
    others = [a_sampler(one, heartbeat_at=NOW).to_mongo() for one in more]
    told = a_sampler("s", heartbeat_at=NOW, state=SamplerState.READY).to_mongo() | sampler
    return Overview(
        stored_run=bson.encode(a_run(heartbeat_at=NOW).to_mongo() | run),
        stored_samplers=tuple(map(bson.encode, (told, *others))),
    )


GISTS: dict[str, tuple[Overview, float, bool]] = {
    "heartbeats": (an_overview({"heartbeat_at": NOW + 5}, {"heartbeat_at": NOW + 5}), NOW, True),
    "what moves with them": (an_overview({}, NUMBERS), NOW, True),
    "time": (an_overview({}, {}), NOW + SILENT_SECONDS - 1, True),
    "silence": (an_overview({}, {}), NOW + SILENT_SECONDS, False),
    "a step": (an_overview({"step": 3}, {}), NOW, False),
    "a phase": (an_overview({"phase": "Training"}, {}), NOW, False),
    "a version": (an_overview({}, {"version": 9}), NOW, False),
    "a state": (an_overview({}, {"state": "draining"}), NOW, False),
    "tokens": (an_overview({}, {"tokens_per_second": 9.0}), NOW, False),
    "an outage": (an_overview({}, {"unavailable": {"Llm": "503"}}), NOW, False),
    "one more": (an_overview({}, {}, "t"), NOW, False),
    "what nobody can read": (an_overview({}, {"heartbeat_at": None, "state": 7}), NOW, False),
    "there is no run": (Overview(), NOW, False),
}


@pytest.mark.parametrize(("told", "now", "same"), GISTS.values(), ids=GISTS.keys())
def test_the_gist_is_of_what_gets_on(told: Overview, now: float, same: bool) -> None:
    assert (told.gist(now) == an_overview({}, {}).gist(NOW)) is same


def test_the_gist_does_not_depend_on_an_order() -> None:
    first, second = an_overview({}, {}, "t"), an_overview({}, {}, "t")
    turned = dataclasses.replace(second, stored_samplers=second.stored_samplers[::-1])
    assert first.gist(NOW) == turned.gist(NOW)
