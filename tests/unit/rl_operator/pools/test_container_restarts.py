"""Each restart of a container is counted once, however often and whenever pods are looked at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rl_operator.kube.kinds import Key
from rl_operator.kube.metrics import REGISTRY
from rl_operator.pools.container_restarts import ContainerRestarts
from rl_operator.state.pod import Container, Pod
from tests.unit.rl_operator.builders import a_pod

KEY = Key("SamplerPool", "ns", "job-main")
SERIES = "rl_operator_container_restarts_total"


def a_sampler(uid: str, *, engine: int = 0, agent: int = 0) -> Pod:
    statuses = [
        {"name": name, "restartCount": count, "state": {"running": {}}}
        for name, count in {"engine": engine, "agent": agent}.items()
    ]
    return a_pod("sampler", uid=uid, containers=tuple(map(Container.parse, statuses)))


def counted(container: str) -> float | None:
    labels = {"pool_namespace": KEY.namespace, "pool": KEY.name, "container": container}
    return REGISTRY.get_sample_value(SERIES, labels)


@pytest.fixture
def restarts() -> Iterator[ContainerRestarts]:
    made = ContainerRestarts()
    yield made
    made.forget(KEY)


def test_restarts_are_counted_once_for_each_container(restarts: ContainerRestarts) -> None:
    readings = [
        [],
        [a_sampler("a"), a_sampler("b", agent=1)],  # b began and crashed between two looks
        [a_sampler("a", engine=2), a_sampler("b", agent=1)],
        [a_sampler("a", engine=2), a_sampler("b", agent=1)],
        [a_sampler("b", agent=2)],
        [a_sampler("c", engine=1), a_sampler("b", agent=2)],
    ]
    for pods in readings:
        restarts.observe(KEY, pods)
    assert (counted("engine"), counted("agent")) == (3, 2)


def test_what_was_before_this_process_is_not_counted(restarts: ContainerRestarts) -> None:
    restarts.observe(KEY, [a_sampler("a", engine=5)])
    assert counted("engine") is None
    restarts.observe(KEY, [a_sampler("a", engine=6)])
    assert counted("engine") == 1


def test_a_pool_that_is_gone_has_no_series(restarts: ContainerRestarts) -> None:
    restarts.observe(KEY, [a_sampler("a")])
    restarts.observe(KEY, [a_sampler("a", engine=1)])
    restarts.forget(KEY)
    assert counted("engine") is None
