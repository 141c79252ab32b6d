"""Which sampler pods count as lost."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rl_contracts.documents.run import EndedSamplers
from rl_contracts.documents.sampler import Sampler, SamplerState
from rl_contracts.spec.status import AttemptStatus, Condition, RLJobStatus
from rl_operator.attempts.status import decided
from rl_operator.kube.timestamps import format_time
from rl_operator.state.decisions import Halted, Wait
from rl_operator.status.job_conditions import compute
from rl_operator.status.lost_samplers import count_lost
from rl_operator.status.status_input import StatusInput
from tests.samples.documents import a_sampler
from tests.unit.rl_operator.builders import NOW, a_reading, a_run_document, a_snapshot


def a_registration(pod: str, start: float, end: float | None, *, drained: bool = True) -> Sampler:
    return a_sampler(
        pod,
        pod=pod,
        state=SamplerState.READY if end is None else SamplerState.GONE,
        registered_at=start,
        heartbeat_at=1000.0 if end is None else end,
        drained=drained and end is not None,
    )


CASES: dict[str, tuple[list[Sampler], int]] = {
    "all there": ([a_registration("p-a-1", 0, None), a_registration("p-a-2", 0, None)], 0),
    "died": ([a_registration("p-a-1", 0, 50, drained=False)], 1),
    "died and replaced": (
        [a_registration("p-a-1", 0, 50, drained=False), a_registration("p-a-2", 60, None)],
        1,
    ),
    "ended in order and replaced": (
        [a_registration("p-a-1", 0, 50), a_registration("p-a-2", 60, None)],
        1,
    ),
    "scaled down": ([a_registration("p-a-1", 0, 50), a_registration("p-a-2", 0, None)], 0),
    "scaled down and up much later": (
        [a_registration("p-a-1", 0, 50), a_registration("p-a-2", 500, None)],
        0,
    ),
    "rolled to another template": (
        [a_registration("p-a-1", 0, 50), a_registration("p-b-1", 60, None)],
        0,
    ),
    "twice, one after the other": (
        [
            a_registration("p-a-1", 0, 50),
            a_registration("p-a-2", 60, 90),
            a_registration("p-a-3", 100, None),
        ],
        2,
    ),
    "one successor stands for one": (
        [
            a_registration("p-a-1", 0, 50),
            a_registration("p-a-2", 0, 50),
            a_registration("p-a-3", 60, None),
        ],
        1,
    ),
}


@pytest.mark.parametrize(("samplers", "lost"), CASES.values(), ids=CASES.keys())
def test_lost_samplers(samplers: list[Sampler], lost: int) -> None:
    assert count_lost(samplers) == lost


SUSPENDED: dict[str, tuple[list[Sampler], int]] = {
    "all ended by it": (
        [
            a_registration("p-a-1", 0, 50.9),
            a_registration("p-a-2", 0, 51.4),
            a_registration("p-a-3", 53, None),
            a_registration("p-a-4", 60, None),
        ],
        0,
    ),
    "one has registered again": (
        [
            a_registration("p-a-1", 0, 50.9),
            a_registration("p-a-2", 0, 51.4),
            a_registration("p-a-3", 53, None),
        ],
        0,
    ),
    "drained for longer than the trainer": (
        [a_registration("p-a-1", 0, 75), a_registration("p-a-2", 80, None)],
        0,
    ),
    "replaced before it": (
        [
            a_registration("p-a-1", 0, 20),
            a_registration("p-a-2", 25, 51),
            a_registration("p-a-3", 60, None),
        ],
        1,
    ),
    "replaced after it": (
        [
            a_registration("p-a-1", 0, 51),
            a_registration("p-a-2", 60, 80),
            a_registration("p-a-3", 85, None),
        ],
        1,
    ),
    "killed by it while it started": (
        [a_registration("p-a-1", 0, 51, drained=False), a_registration("p-a-2", 60, None)],
        0,
    ),
    "died after it": (
        [a_registration("p-a-1", 60, 80, drained=False), a_registration("p-a-2", 90, None)],
        1,
    ),
}


@pytest.mark.parametrize(("samplers", "lost"), SUSPENDED.values(), ids=SUSPENDED.keys())
def test_what_a_suspension_ended_is_not_lost(samplers: list[Sampler], lost: int) -> None:
    assert count_lost(samplers, suspended=[51.0]) == lost


def test_a_sampler_that_died_long_before_a_suspension_is_lost() -> None:
    samplers = [a_registration("p-a-1", 0, 50, drained=False), a_registration("p-a-2", 60, None)]
    assert count_lost(samplers, suspended=[400.0]) == 1


RECORD = AttemptStatus(
    attempt=1, result="Suspended", start_time=format_time(NOW), end_time=format_time(NOW + 51)
)
CONDITION = Condition(
    type="Suspended",
    status="False",
    reason="Resumed",
    observed_generation=1,
    last_transition_time=format_time(NOW + 51),
)


@pytest.mark.parametrize(
    ("known", "restarts"),
    [({"attempts": [RECORD]}, 0), ({"conditions": [CONDITION]}, 0), ({}, 1)],
    ids=["in a running attempt", "between two attempts", "not at all"],
)
def test_samplers_that_return_before_the_next_attempt_are_not_lost(
    known: dict[str, Any], restarts: int
) -> None:
    """It begins as soon as all of them are there; the first is there before."""
    status = RLJobStatus(attempt=1, **known)
    samplers = (a_registration("p-a-1", NOW, NOW + 50.2), a_registration("p-a-2", NOW + 52.9, None))
    status_input = StatusInput(
        snapshot=a_snapshot(status),
        reading=a_reading(a_run_document(), samplers=samplers[1:], registrations=samplers),
        decision=Wait(why="Samplers"),
        now=NOW + 53.0,
    )
    assert compute(status_input).samplers.restarts == restarts


def test_lost_samplers_count_on_when_their_registrations_are_deleted() -> None:
    samplers = [
        a_registration("p-a-1", 0, 50, drained=False),
        a_registration("p-a-2", 60, 300),
        a_registration("p-a-3", 310, 400, drained=False),
    ]
    assert count_lost(samplers) == 3  # two died, one was evicted and replaced
    ended = EndedSamplers(before=200, died=1)
    assert count_lost(samplers, forgotten=ended) == 3  # noted and not deleted yet
    assert count_lost(samplers[1:], forgotten=ended) == 3


def test_an_attempt_after_a_suspension_is_no_restart_of_the_trainer() -> None:
    status_input = StatusInput(
        snapshot=a_snapshot(RLJobStatus(attempt=2, suspensions=1)),
        reading=a_reading(a_run_document(trainers=2)),
        decision=Wait(why="Running"),
        now=NOW,
    )
    assert compute(status_input).trainer.restarts == 0
    crashed = dataclasses.replace(status_input, reading=a_reading(a_run_document(trainers=3)))
    assert compute(crashed).trainer.restarts == 1


def test_each_suspended_attempt_is_counted_once() -> None:
    active = AttemptStatus(attempt=1, result="Active", start_time=format_time(NOW))
    status = decided(RLJobStatus(attempt=1, attempts=[active]), Halted(attempt=1), NOW)
    assert status.suspensions == 1
    assert decided(status, Halted(attempt=1), NOW).suspensions == 1
