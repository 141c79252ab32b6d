"""Whatever happens to a job, in whatever order: one trainer at a time, each attempt once, rest."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rl_contracts.documents.run import Outcome
from rl_operator.kube.conditions import find, is_true
from tests.examples import examples
from tests.unit.rl_operator.model_life import Life

Event = Callable[[Life], object]


RULES = [
    {"action": "Ignore", "onPodCondition": {"type": "DisruptionTarget"}},
    {"action": "FailJob", "onExitCodes": {"values": [42]}},
]


def suspend(life: Life) -> None:
    life.set_suspend(True)


def resume(life: Life) -> None:
    life.set_suspend(False)


def succeed(life: Life) -> None:
    if life.live_trainers():
        life.outcome = Outcome(kind="Succeeded", reason="Trained", message="All steps.")
        life.end_trainer(0)


def wait(life: Life) -> None:
    life.now += 700.0  # longer than the longest pause between attempts
    life.progress_at = life.now


def hang(life: Life) -> None:
    life.now += 2000.0  # longer than lifecycle.progressDeadlineSeconds


def crash_after(actions: int) -> Event:
    return lambda life: life.reconcile(actions=actions)


EVENTS: dict[str, Event] = {
    "reconcile": lambda life: life.reconcile(),
    "settle": lambda life: life.settle(),
    "others work": lambda life: life.others(),
    "deleted pods end": lambda life: life.end_deleted_pods(),
    "crash at once": crash_after(0),
    "crash after one action": crash_after(1),
    "crash after three actions": crash_after(3),
    "the status is lost": lambda life: life.reconcile(writes_status=False),
    "suspend": suspend,
    "resume": resume,
    "trainer crashes": lambda life: life.end_trainer(1),
    "trainer is terminated": lambda life: life.end_trainer(143),
    "trainer is evicted": lambda life: life.end_trainer(137, conditions=("DisruptionTarget",)),
    "trainer must not be retried": lambda life: life.end_trainer(42),
    "trainer hangs": hang,
    "succeed": succeed,
    "time passes": wait,
}
SPOILT: dict[str, Event] = {
    "the spec is refused": lambda life: life.spoil("refused"),
    "the spec cannot be read": lambda life: life.spoil("unreadable"),
    "the spec is mended": lambda life: life.spoil(""),
}


@example(
    [
        "settle",
        "trainer hangs",
        "reconcile",
        "time passes",
        "others work",
        "reconcile",
        "reconcile",
        "others work",
    ]
)  # a retry while the old pod still stops
@example(
    [
        "settle",
        "suspend",
        "reconcile",
        "others work",
        "resume",
        "reconcile",
        "reconcile",
        "others work",
    ]
)
@example(["settle", *["trainer hangs"] * 5])  # longer than lifecycle.activeDeadlineSeconds
@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.sampled_from(sorted(EVENTS)), max_size=30))
def test_any_history_leads_to_rest(history: list[str]) -> None:
    life = Life(backoffLimit=2, activeDeadlineSeconds=9000, failurePolicy={"rules": RULES})
    for event in history:
        EVENTS[event](life)
        assert len(set(life.live_trainers())) <= 1 or life.overdue(), "two attempts at a time"
    life.settle()
    before = life.writes
    life.settle()
    assert life.writes == before, "a second look writes"
    assert life.begun == list(range(1, len(life.begun) + 1)), "an attempt was skipped or repeated"
    status = life.status
    over = is_true(status.conditions, "Complete") or is_true(status.conditions, "Failed")
    if over or life.suspend:
        assert life.live_trainers() == []
    if life.suspend and not over:
        assert is_true(status.conditions, "Suspended")
        assert not life.pods or not any(pod.live for pod in life.pods.values())
        assert status.phase == "Suspended"
    assert status.failures <= 3


@settings(deadline=None, max_examples=examples(30))
@given(st.lists(st.sampled_from(["suspend", "resume", "settle", "crash after one action"])))
def test_suspensions_are_no_failures(history: list[str]) -> None:
    life = Life(backoffLimit=0)
    life.settle()
    for event in history:
        EVENTS[event](life)
    life.set_suspend(False)
    life.settle()
    assert life.status.failures == 0
    assert life.live_trainers() == [life.status.attempt]
    assert find(life.status.conditions, "Failed") is None


@example(["settle", "the spec is refused", "suspend", "settle"])
@example(["settle", "the spec cannot be read", "suspend", "settle", "the spec is mended"])
@example(["settle", "the spec cannot be read", "trainer crashes", "suspend", "settle", "resume"])
@example(
    ["settle", "the spec is refused", "trainer crashes", "settle", "time passes", "settle"]
)  # an attempt of which no trainer can be made
@settings(deadline=None)
@given(st.lists(st.sampled_from(sorted({**EVENTS, **SPOILT})), max_size=30))
def test_a_spoilt_spec_may_be_suspended_and_goes_on_when_it_is_mended(history: list[str]) -> None:
    life = Life(backoffLimit=2)
    for event in history:
        begun, spoilt = len(life.begun), life.spoilt
        {**EVENTS, **SPOILT}[event](life)
        assert len(set(life.live_trainers())) <= 1 or life.overdue(), "two attempts at a time"
        assert not spoilt or begun == len(life.begun), "it begins without a trainer"
    life.settle()
    before = life.writes
    life.settle()
    assert life.writes == before, "a second look writes"
    status = life.status
    over = is_true(status.conditions, "Complete") or is_true(status.conditions, "Failed")
    if life.suspend and not over:
        assert not [pod for pod in life.pods.values() if pod.live]
        assert is_true(status.conditions, "Suspended")
    life.spoil("")
    life.set_suspend(False)
    life.settle()
    wait(life)
    life.settle()
    status = life.status
    over = is_true(status.conditions, "Complete") or is_true(status.conditions, "Failed")
    assert over or life.live_trainers() == [status.attempt]
    assert life.begun == list(range(1, len(life.begun) + 1)), "an attempt was skipped or repeated"


def reconcile(**faults: Any) -> Event:
    return lambda life: life.reconcile(**faults)


FAULTS: dict[str, Event] = {
    "a look too many": reconcile(),
    "409, 429 or 500 at once": reconcile(actions=0),
    "409, 429 or 500 after one action": reconcile(actions=1),
    "409, 429 or 500 after two": reconcile(actions=2),
    "409, 429 or 500 for the status": reconcile(writes_status=False),
    "422 for the first action": reconcile(refused=0),
    "422 for the second": reconcile(refused=1),
    "a stale look": reconcile(stale="all"),
    "a stale look that ends early": reconcile(stale="all", actions=1),
    "a look that sees older pods": reconcile(stale="pods"),
    "a look that sees older objects": reconcile(stale="objects"),
    "a look that sees older objects and ends early": reconcile(stale="objects", actions=1),
    "the clock an hour back": reconcile(skew=-3600.0),
    "the clock an hour ahead": reconcile(skew=3600.0),
    "others work": lambda life: life.others(),
    "deleted pods end": lambda life: life.end_deleted_pods(),
}


def world_of(life: Life) -> dict[str, Any]:
    """What a fixed point consists of, without times."""
    status = life.status
    return {
        "objects": sorted(life.cluster.objects),
        "pods": sorted(life.pods),
        "status": (status.phase, status.attempt, status.failures, status.ignored_failures),
        "conditions": sorted(
            (condition.type, condition.status, condition.reason) for condition in status.conditions
        ),
        "records": [
            (attempt.attempt, attempt.result, attempt.reason) for attempt in status.attempts
        ],
    }


def check_same_rest(life: Life, *, history: list[Event], faults: list[Event]) -> None:
    """After a history, faults change nothing of what everything comes to."""
    for event in history:
        event(life)
    spared = copy.deepcopy(life)
    for fault in faults:
        fault(life)
    for model in (spared, life):
        model.settle()
        wait(model)  # pauses between attempts are over
        model.settle()
    assert world_of(life) == world_of(spared)


@example(["crash at once", "suspend"], ["a stale look"])
@example(["settle", "trainer crashes", "trainer hangs"], ["a stale look"])
@example(["settle", "trainer hangs", "the status is lost", "time passes"], ["a stale look"])
@settings(deadline=None)
@given(
    st.lists(st.sampled_from(sorted(EVENTS)), max_size=15),
    st.lists(st.sampled_from(sorted(FAULTS)), max_size=15),
)
def test_faults_lead_to_the_same_rest(history: list[str], faults: list[str]) -> None:
    """Lost and repeated looks, refused writes, stale reads and a clock that jumps."""
    life = Life(backoffLimit=2, failurePolicy={"rules": RULES})
    check_same_rest(
        life,
        history=[EVENTS[event] for event in history],
        faults=[FAULTS[fault] for fault in faults],
    )
