"""Which pods of a pool go, and which have lost their use."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_contracts.documents.sampler import SamplerState
from rl_operator.pools.removal_plan import (
    VICTIM_COST,
    Fault,
    Mark,
    faults,
    lasting,
    marks,
    replaceable,
    resolved,
    victims,
)
from rl_operator.state.pod import Container, Pod
from tests.samples.documents import a_sampler
from tests.unit.rl_operator.builders import NOW, a_pod


def pod(name: str, **changes: Any) -> Pod:
    return a_pod("sampler", **{"name": name, "uid": f"{name}-uid", **changes})


def sampler(name: str, **changes: Any) -> Any:
    return a_sampler(name, pod=name, **{"version": 5, "step": 5, "groups_running": 4, **changes})


VICTIMS: dict[str, tuple[list[Pod], list[Any], str]] = {
    "a marked one": (
        [pod("a"), pod("b", deletion_cost=VICTIM_COST)],
        [sampler("b"), sampler("a", version=1)],
        "b",
    ),
    "one that is not ready": (
        [pod("a"), pod("b", ready=False)],
        [sampler("a", groups_running=0), sampler("b")],
        "b",
    ),
    "the oldest policy": ([pod("a"), pod("b")], [sampler("a"), sampler("b", version=4)], "b"),
    "the least work": ([pod("a"), pod("b")], [sampler("a"), sampler("b", groups_running=1)], "b"),
    "the newest": ([pod("a"), pod("b", created_at=NOW)], [sampler("a"), sampler("b")], "b"),
    "none that goes already": ([pod("a"), pod("b", deleting=True)], [], "a"),
    "none that has ended": ([pod("a"), pod("b", phase="Failed")], [], "a"),
}


@pytest.mark.parametrize(("pods", "samplers", "victim"), VICTIMS.values(), ids=VICTIMS.keys())
def test_shrink_removes_the_least_useful_pod(
    pods: list[Pod], samplers: list[Any], victim: str
) -> None:
    assert [pod.name for pod in victims(pods, samplers, count=1)] == [victim]
    assert [pod.name for pod in victims(pods[::-1], samplers, count=1)] == [victim]


PODS = st.lists(
    st.builds(
        lambda name, ready, deleting, cost: pod(
            name, ready=ready, deleting=deleting, deletion_cost=cost
        ),
        st.sampled_from("abcdefgh"),
        st.booleans(),
        st.booleans(),
        st.sampled_from([0, VICTIM_COST, 7]),
    ),
    unique_by=lambda pod: pod.name,
)


@settings(deadline=None)
@given(PODS, st.integers(0, 8))
def test_marks_once_written_are_never_written_again(pods: list[Pod], count: int) -> None:
    chosen = victims(pods, [], count=count)
    written = {mark.pod: mark.cost for mark in marks(pods, chosen)}
    after = [
        dataclasses.replace(pod, deletion_cost=written.get(pod.name, pod.deletion_cost))
        for pod in pods
    ]
    again = victims(after, [], count=count)
    assert {pod.name for pod in again} == {pod.name for pod in chosen}
    assert marks(after, again) == []
    marked = {pod.name for pod in after if pod.deletion_cost == VICTIM_COST and not pod.deleting}
    assert marked == {pod.name for pod in chosen}


def test_mark_is_removed_when_the_pool_grows_again() -> None:
    assert marks([pod("a", deletion_cost=VICTIM_COST)], []) == [Mark("a", 0)]
    assert marks([pod("a", deletion_cost=7)], []) == []  # somebody else's


def faults_by_pod(pods: list[Pod], samplers: list[Any]) -> list[tuple[str, str]]:
    seen = faults(pods, samplers, step=9, bound=3, update_seconds=60, now=NOW)
    return [(fault.pod.name, fault.reason) for fault in seen]


FAULTS: dict[str, tuple[Pod, list[Any], str]] = {
    "well": (pod("a"), [sampler("a", step=6)], ""),
    "stale": (pod("a"), [sampler("a", step=5)], "Stale"),
    "still loading": (pod("a"), [sampler("a", step=0, state=SamplerState.LOADING)], ""),
    "drains": (pod("a"), [sampler("a", step=0, state=SamplerState.DRAINING)], ""),
    "silent": (pod("a", started_at=NOW - 121), [], "Silent"),
    "has just started": (pod("a", started_at=NOW - 119), [], ""),
    "has not started": (pod("a", started_at=None), [], ""),
    "its engine ended and does not come back": (
        pod("a", ready=False, containers=(Container(name="engine", exit_code=1),)),
        [sampler("a", version=0, step=0, state=SamplerState.STARTING)],
        "NoEngine",
    ),
    "its engine starts for the first time": (
        pod("a", ready=False, containers=(Container(name="engine"),)),
        [sampler("a", version=0, step=0, state=SamplerState.STARTING)],
        "",
    ),
    "its engine was restarted and serves": (
        pod("a", containers=(Container(name="engine", exit_code=1),)),
        [sampler("a", step=9)],
        "",
    ),
    "its agent ended, not its engine": (
        pod("a", ready=False, containers=(Container(name="agent", exit_code=1),)),
        [sampler("a", version=0, step=0, state=SamplerState.STARTING)],
        "",
    ),
    "is going": (pod("a", started_at=NOW - 999, deleting=True), [], ""),
}


@pytest.mark.parametrize(("pod", "samplers", "reason"), FAULTS.values(), ids=FAULTS.keys())
def test_stale_silent_and_engineless_pods_are_faulty(
    pod: Pod, samplers: list[Any], reason: str
) -> None:
    assert faults_by_pod([pod], samplers) == ([("a", reason)] if reason else [])


def test_only_a_fault_that_lasts_counts() -> None:
    fault = Fault(pod("a"), "Stale", "", 120.0)
    since, over = lasting({}, [fault], now=0.0)
    assert over == []
    since, over = lasting(since, [fault], now=120.0)
    assert over == []
    assert lasting(since, [fault], now=121.0)[1] == [fault]
    since, _ = lasting(since, [], now=121.0)  # it was well in between
    assert lasting(since, [fault], now=500.0)[1] == []


@pytest.mark.parametrize(
    ("ready", "faulty", "away", "gone"),
    [(3, 1, "25%", 1), (2, 2, "25%", 1), (2, 2, 2, 2), (2, 1, "25%", 0), (0, 4, "25%", 1)],
)
def test_replacements_respect_max_unavailable(
    ready: int, faulty: int, away: int | str, gone: int
) -> None:
    good = [pod(f"g{index}") for index in range(ready)]
    bad = [Fault(pod(f"b{index}"), "Stale", "", 0.0) for index in range(faulty)]
    pods = good + [fault.pod for fault in bad]
    chosen = replaceable(pods, bad, replicas=4, max_unavailable=away)
    assert [fault.pod.name for fault in chosen] == [f"b{index}" for index in range(gone)]


@pytest.mark.parametrize(
    ("value", "replicas", "pods"),
    [("25%", 4, 1), ("25%", 3, 1), ("50%", 9, 4), (3, 2, 3), (0, 2, 1)],
)
def test_percentages_are_of_the_pools_size(value: int | str, replicas: int, pods: int) -> None:
    assert resolved(value, replicas) == pods
