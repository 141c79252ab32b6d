"""Whatever happens, a shared pool serves one run at a time, and everybody in the end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rl_operator.kube import kinds, names
from rl_operator.kube.conditions import ConditionUpdate
from tests.examples import examples
from tests.unit.rl_operator.model_turns import POOL, Turns

Event = Callable[[Turns], object]
ENDED = ConditionUpdate("Complete", "True", "Succeeded", "m")


def say(turns: Turns, *, name: str) -> None:
    turns.say(name)


def of_holder(act: Callable[[Turns, str], object]) -> Event:
    return lambda turns: act(turns, turns.holder) if turns.holder else None


def reconcile(*ages: int, live: bool = True, writes: int | None = None, paused: int = 0) -> Event:
    return lambda turns: turns.look(*ages, live=live, writes=writes, paused=paused)


def lose_deployment(turns: Turns) -> None:
    """A person deletes it; its pods end."""
    turns.api.objects.pop((kinds.DEPLOYMENT.name, POOL), None)
    for pod in turns.pods():
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        turns.api.touch(pod)


def raise_deployment(turns: Turns) -> None:
    """A person scales it by hand."""
    deployment = turns.api.objects.get((kinds.DEPLOYMENT.name, POOL))
    if deployment is not None:
        deployment["spec"]["replicas"] = 3
        turns.api.touch(deployment, spec=True)


def lose_status(turns: Turns) -> None:
    turns.pool["status"] = {}
    turns.api.touch(turns.pool)


EVENTS: dict[str, Event] = {
    "look": reconcile(),
    "look by the store": reconcile(live=False),
    "look at an old store": reconcile(4, 3, 2, 1, live=False),
    "a paused operator goes on": reconcile(3, 3, 3, 3),
    "one that was paused for long": reconcile(9, 9, 9, 9),
    "one that was paused as it read": reconcile(8, 5, 3, 0),
    "one that has read the pool long ago": reconcile(6, 0, 0, 0),
    "pause": lambda turns: turns.pause(),
    "go on after the pool was read": reconcile(paused=1),
    "go on after the jobs were read": reconcile(paused=2),
    "go on after the Deployment was read": reconcile(paused=3),
    "go on after all was read": reconcile(paused=4),
    "die at once": reconcile(writes=0),
    "die after one write": reconcile(writes=1),
    "die after two writes": reconcile(writes=2),
    "the controller sees": lambda turns: turns.controller_sees(),
    "the controller acts": lambda turns: turns.control(),
    "containers end": lambda turns: turns.end_containers(),
    "pods end": lambda turns: turns.end_pods(),
    "settle": lambda turns: turns.settle(),
    "the holder ends": of_holder(lambda turns, name: turns.say(name, ENDED)),
    "the holder is suspended": of_holder(lambda turns, name: turns.suspend(name, wanted=True)),
    "the holder is deleted": of_holder(lambda turns, name: turns.delete(name)),
    **{f"{job} comes": partial(Turns.make, name=job) for job in "abc"},
    **{f"{job} says": partial(say, name=job) for job in "abc"},
    **{f"{job} resumes": partial(Turns.suspend, name=job, wanted=False) for job in "abc"},
}
BY_HAND: dict[str, Event] = {
    **EVENTS,
    "the Deployment is deleted": lose_deployment,
    "the status is lost": lose_status,
}
ACTED = ["the controller sees", "the controller acts"]
TWO_WAIT = ["a comes", "b comes", "a says", "b says"]


def serve_all(turns: Turns) -> None:
    """Every job that asks has the pool in the end, who asked first first."""
    for name in turns.jobs:
        turns.suspend(name, wanted=False)
        turns.say(name)
    turns.settle()
    for name in turns.jobs:
        turns.say(name)
    turns.settle()
    waiting = [entry["job"] for entry in turns.pool["status"].get("waiting", [])]
    expected = [*([turns.holder] if turns.holder else []), *waiting]
    began = len(turns.served) - (1 if turns.holder else 0)
    for _ in expected:
        assert turns.holder, "nobody has the pool although somebody waits"
        assert len(turns.pods()) == 2
        turns.say(turns.holder, ENDED)
        turns.settle()
    assert turns.served[began:] == expected
    assert not turns.holder
    assert not turns.pods()
    assert names.IN_USE_FINALIZER not in turns.pool["metadata"].get("finalizers", [])


HANDED_ON = [*TWO_WAIT, "settle", "pause", "the holder is suspended", "settle", "settle"]


SERVED = [*TWO_WAIT, *["look"] * 4, "the controller sees"]
"""The pool has just been given away, and its controller is about to make pods."""
ENDING = [*TWO_WAIT, "settle", "the holder ends", "look", "look"]


@example([*ENDING, *ACTED, *["look"] * 4, *ACTED])  # the last pods have not ended yet
@example([*ENDING, *ACTED, "containers end", *["look"] * 4, *ACTED])  # the pods are still there
@example([*ENDING, "pods end", *["look"] * 4, *ACTED])  # the controller has not acted yet
@example([*SERVED, "the holder is suspended", *["look"] * 6, "the controller acts", *ACTED])
@example([*HANDED_ON, "a resumes", "go on after the pool was read", *ACTED])
@example([*HANDED_ON, "a resumes", "go on after the jobs were read", *ACTED])
@example([*HANDED_ON, "go on after the Deployment was read", *ACTED])
@example([*HANDED_ON, "go on after all was read", *ACTED])
@example([*TWO_WAIT, "settle", "the holder ends", *["settle"] * 2])
@example([*TWO_WAIT, "settle", "the holder is suspended", "look", "one that was paused for long"])
@settings(deadline=None, max_examples=examples(75))
@given(st.lists(st.sampled_from(sorted(EVENTS)), max_size=40))
def test_one_run_at_a_time_and_every_job_gets_the_pool(history: list[str]) -> None:
    turns = Turns()
    for event in history:
        EVENTS[event](turns)
        turns.note()
        assert len(turns.runs()) <= 1, f"after {event}: pods of {turns.runs()}"
    serve_all(turns)
    before = turns.api.writes
    turns.look()
    assert turns.api.writes == before, "a second look writes"


@settings(deadline=None, max_examples=examples(50))
@given(st.lists(st.sampled_from(sorted(BY_HAND)), max_size=40))
def test_manual_changes_are_repaired(history: list[str]) -> None:
    turns = Turns()
    for event in history:
        BY_HAND[event](turns)
        turns.note()
        if event in ("the Deployment is deleted",):
            turns.end_pods()
        assert len(turns.runs()) <= 1, f"after {event}: pods of {turns.runs()}"
    serve_all(turns)


def test_first_request_is_served_first() -> None:
    turns = Turns()
    for name in ("b", "a", "c"):
        turns.make(name)
        turns.say(name)
    turns.settle()
    assert turns.holder == "b"
    turns.suspend("b", wanted=True)
    turns.say("b")
    turns.settle()
    turns.suspend("b", wanted=False)
    turns.say("b")  # asks anew: behind those that waited
    turns.settle()
    assert turns.holder == "a"
    status = turns.pool["status"]
    assert [entry["job"] for entry in status["waiting"]] == ["c", "b"]
    assert status["waitingJobs"] == 2
    serve_all(turns)
    assert turns.served == ["b", "a", "c", "b"]


def test_stalled_holder_releases_the_pool_to_others() -> None:
    turns = Turns()
    stalled = ConditionUpdate("Stalled", "True", "ScorerUnknown", "m")
    turns.make("a")
    turns.say("a")
    turns.settle()
    turns.say("a", stalled)
    turns.now += 1000.0
    turns.settle()
    assert turns.holder == "a", "nobody else wants it"
    turns.make("b")
    turns.say("b")
    turns.settle()
    assert turns.holder == "b"


def test_a_pool_in_use_outlives_its_deletion() -> None:
    turns = Turns()
    for name in ("a", "b"):
        turns.make(name)
        turns.say(name)
    turns.settle()
    turns.pool["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    turns.api.touch(turns.pool)
    turns.settle()
    assert turns.holder == "a"
    assert len(turns.pods()) == 2
    turns.say("a", ENDED)
    turns.settle()
    assert not turns.holder, "nobody gets a pool that goes"
    assert turns.pool["metadata"]["finalizers"] == []


def test_a_pool_restored_in_use_is_reported_on_and_can_be_deleted() -> None:
    """A restore writes the finalizer by another manager; nobody uses the pool."""
    turns = Turns()
    turns.pool["metadata"]["finalizers"] = [names.IN_USE_FINALIZER, "others.io/theirs"]
    turns.settle()
    assert turns.pool["metadata"]["finalizers"] == ["others.io/theirs"]
    assert turns.pool["status"]["conditions"]


def test_manual_scaling_of_the_deployment_is_reverted() -> None:
    turns = Turns()
    turns.make("a")
    turns.say("a")
    turns.settle()
    for expected in (2, 0):
        raise_deployment(turns)
        turns.settle()
        assert len(turns.pods()) == expected
        turns.say("a", ENDED)
        turns.settle()
