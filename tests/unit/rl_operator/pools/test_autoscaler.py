"""Advice of the autoscaler, case by case; whole traces are in ``test_autoscaler_traces``."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rl_contracts.spec.pool_status import ScaleStatus
from rl_contracts.spec.workers import Autoscaling
from rl_operator.kube.timestamps import format_time
from rl_operator.pools.autoscaler import Evidence, Observation, advise, observe
from tests.unit.rl_operator.builders import NOW

WANTED = Autoscaling(mode="Builtin", min_replicas=2, max_replicas=16, idle_seconds_to_zero=600)


def seen(**changes: Any) -> Observation:
    values: dict[str, Any] = {
        "now": NOW,
        "replicas": 4,
        "serving": 4,
        "running_groups": 32,
        "slots": 64,
        "backlog": 64,
        "tokens_per_second": 400.0,
        "step": 10,
    }
    return Observation(**{**values, **changes})


def evidence(wait: float, busy: float, *, age: float = 1000.0, steps: int = 5) -> Evidence:
    readings = tuple((step, 10 * wait, 10 * (1 - wait)) for step in range(5, 5 + steps))
    return Evidence(
        replicas=4,
        since=NOW - age,
        first_step=4,
        steps=readings,
        samples=20,
        busy=busy,
        tokens_per_second=400.0,
    )


def scaled(before: int, after: int, *, age: float, reason: str = "TrainerWaits") -> ScaleStatus:
    return ScaleStatus(
        time=format_time(NOW - age),
        before=before,
        after=after,
        reason=reason,
        tokens_per_second=200.0,
    )


ADVICE: dict[str, tuple[Observation, Evidence | None, list[ScaleStatus], int, str]] = {
    "grows by what the trainer waits": (seen(), evidence(0.4, 0.9), [], 7, "TrainerWaits"),
    "at most doubles": (seen(), evidence(0.9, 0.9), [], 8, "TrainerWaits"),
    "never beyond the groups there are": (
        seen(backlog=6),
        evidence(0.9, 0.9),
        [],
        6,
        "TrainerWaits",
    ),
    "never beyond the maximum": (
        seen(replicas=12, serving=12),
        dataclasses.replace(evidence(0.5, 0.9), replicas=12),
        [],
        16,
        "TrainerWaits",
    ),
    "waits, but nothing is queued": (seen(backlog=32), evidence(0.4, 0.4), [], 4, "Balanced"),
    "waits a little": (seen(), evidence(0.1, 0.9), [], 4, "Balanced"),
    "what pods can do shows while the trainer waits": (
        seen(),
        evidence(0.0, 0.3),
        [scaled(2, 3, age=5000)],
        4,
        "Balanced",
    ),
    "a calm size is put to the test": (
        seen(),
        evidence(0.0, 0.3, age=1300),
        [scaled(2, 3, age=5000)],
        3,
        "SamplersIdle",
    ),
    "one step is no evidence": (seen(), evidence(0.4, 0.9, steps=1), [], 4, "Balanced"),
    "has just grown": (seen(), evidence(0.4, 0.9, age=20), [], 4, "Cooldown"),
    "growing brought nothing": (
        seen(),
        dataclasses.replace(evidence(0.4, 0.9), tokens_per_second=210.0),
        [scaled(2, 4, age=300)],
        4,
        "NoGain",
    ),
    "shrinks by a quarter": (seen(), evidence(0.0, 0.3), [], 3, "SamplersIdle"),
    "the rest must not be too busy": (
        seen(staleness_slack=0),
        evidence(0.0, 0.79),
        [],
        4,
        "Balanced",
    ),
    "busy enough": (seen(), evidence(0.0, 0.65), [], 4, "Balanced"),
    "data are too old and samplers have room": (
        seen(staleness_slack=0),
        evidence(0.0, 0.55),
        [],
        3,
        "SamplersIdle",
    ),
    "shrinks slowly": (seen(), evidence(0.0, 0.3, age=200), [], 4, "Cooldown"),
    "not to what was too small lately": (
        seen(),
        evidence(0.0, 0.3),
        [scaled(3, 4, age=3500)],
        4,
        "Balanced",
    ),
    "to what was too small long ago": (
        seen(),
        dataclasses.replace(evidence(0.0, 0.3), tokens_per_second=100.0),
        [scaled(3, 4, age=3700)],
        3,
        "SamplersIdle",
    ),
    "pods are starting": (seen(serving=2), None, [], 4, "PodsStarting"),
    "below the minimum": (seen(replicas=1, serving=1), None, [], 2, "BelowMinimum"),
    "above the maximum": (seen(replicas=20, serving=20), None, [], 16, "AboveMaximum"),
    "nobody trains": (
        seen(backlog=0, trainer_silent_seconds=601),
        evidence(0.0, 0.0),
        [],
        0,
        "Idle",
    ),
    "nobody trains, work is left": (
        seen(backlog=1, trainer_silent_seconds=601),
        evidence(0.2, 0.0, steps=1),
        [],
        4,
        "Balanced",
    ),
    "the trainer is back": (seen(replicas=0, serving=0, backlog=3), None, [], 2, "WorkIsBack"),
    "still nobody": (
        seen(replicas=0, serving=0, backlog=0, trainer_silent_seconds=900),
        None,
        [],
        0,
        "Idle",
    ),
}


@pytest.mark.parametrize(
    ("look", "known", "history", "replicas", "reason"), ADVICE.values(), ids=ADVICE.keys()
)
def test_advice(
    look: Observation,
    known: Evidence | None,
    history: list[ScaleStatus],
    replicas: int,
    reason: str,
) -> None:
    advice = advise(look, known, WANTED, history)
    assert (advice.replicas, advice.reason) == (replicas, reason)


def test_advice_reports_that_max_replicas_limits() -> None:
    look = seen(replicas=16, serving=16)
    known = dataclasses.replace(evidence(0.5, 0.9), replicas=16)
    advice = advise(look, known, WANTED)
    assert (advice.replicas, advice.limited) == (16, True)


def test_evidence_is_of_one_size() -> None:
    first = observe(None, seen(step=7))
    assert first is not None
    assert observe(first, seen(serving=3)) is None
    assert observe(first, seen(replicas=5, serving=5, step=8)) == Evidence(
        replicas=5, since=NOW, first_step=9
    )
    same = observe(first, seen(step=8, wait_seconds=9.0, train_seconds=1.0))
    assert same is not None
    assert same.steps == ()  # begun at another size
    later = observe(same, seen(step=9, wait_seconds=1.0, train_seconds=3.0))
    assert later is not None
    assert later.wait_share == 0.25
    again = observe(later, seen(step=9, wait_seconds=1.0, train_seconds=3.0))
    assert again is not None
    assert again.steps == later.steps
