from __future__ import annotations

import pytest

from rl_contracts.documents.sampler import SamplerState
from rl_contracts.documents.task import TaskState
from rl_trainer.context.waiting import (
    ENOUGH_SECONDS,
    describe_samplers,
    describe_tasks,
    poll_interval,
    poll_seconds,
)
from tests.samples.documents import a_sampler


def test_samplers_are_described_by_state_with_their_last_error() -> None:
    assert describe_samplers([], now=100) == "none has registered"
    samplers = [
        a_sampler("a", heartbeat_at=99),
        a_sampler("b", heartbeat_at=90),
        a_sampler("d", heartbeat_at=80),
        a_sampler("c", state=SamplerState.GONE, last_error="engine died"),
    ]
    description = describe_samplers(samplers, now=100)
    assert description == "2 ready, 1 silent, 1 gone; last error: engine died"


def test_tasks_are_described_by_state() -> None:
    assert describe_tasks({TaskState.PENDING: 3, TaskState.CLAIMED: 0}) == "3 pending"
    assert describe_tasks({}) == "none"


def test_many_tasks_are_polled_less_often() -> None:
    waits = [poll_seconds(number) for number in (1, 16, 400, 10_000, 10**6)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (0.05, 5.0)


@pytest.mark.parametrize(
    ("missing", "awaited", "seconds"),
    [
        (32, True, 0.1),
        (5, True, 0.1),
        (4, True, 0.05),
        (0, True, 0.05),
        (-3, True, 0.05),
        (32, False, 0.2),
        (1, False, 0.2),
        (0, False, ENOUGH_SECONDS),
        (-9, False, ENOUGH_SECONDS),
    ],
)
def test_polls_are_more_frequent_while_groups_are_awaited(
    missing: int, awaited: bool, seconds: float
) -> None:
    assert poll_interval(32, missing=missing, awaited=awaited) == pytest.approx(seconds)


def test_many_groups_are_polled_less_often() -> None:
    intervals = [poll_interval(10_000, missing=number, awaited=False) for number in (0, 1)]
    assert intervals == [pytest.approx(4 * poll_seconds(10_000))] * 2
