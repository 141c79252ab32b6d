"""A new job's first status may wait, and is until then as good as written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_contracts.spec.resources import SamplerPoolSpec
from rl_contracts.spec.status import Condition, RLJobStatus, SamplerPoolStatus
from rl_operator.apply import status_urgency
from rl_operator.apply.deferred_status import FirstWords, may_wait
from rl_operator.attempts.start_gate import SamplerShortfall
from rl_operator.kube.conditions import find
from rl_operator.kube.kinds import Key
from rl_operator.kube.timestamps import format_time
from rl_operator.state.decisions import Begin, Wait
from rl_operator.state.pod import Container, Pod
from rl_operator.state.progress import Reach
from rl_operator.state.snapshot import Job, Pool
from rl_operator.status.job_conditions import compute
from rl_operator.status.status_input import Stall, StatusInput
from tests.unit.rl_operator.builders import NOW, a_job_object, a_meta, a_pod, a_reading, a_snapshot

LACKS = (SamplerShortfall(group="main", registered=0, minimum=2),)
CHECKING: dict[str, Any] = {"decision": Wait(why="Inputs"), "checking": True}
WAITING: dict[str, Any] = {"decision": Wait(why="Inputs"), "shortfalls": LACKS}
BEGINNING: dict[str, Any] = {"decision": Begin(attempt=1)}
STALLED: dict[str, Any] = {
    "decision": Wait(why="Inputs"),
    "stall": Stall(reason="ModelNotFound", message="Upload it."),
}
AWAY = Reach("False", "StorageUnreachable", "no route")
SUSPENDED = a_job_object(suspend=True)


POOL = Pool(
    meta=a_meta("job-main"),
    spec=SamplerPoolSpec(job="job", replicas=2),
    spec_error="",
    status=SamplerPoolStatus(),
)
DUE: dict[str, Any] = {"phase": "Pending", "ready": False}


def a_sampler(name: str, waiting: str = "", **changes: Any) -> Pod:
    containers = (Container(name="engine", waiting=waiting),)
    return a_pod("sampler", name=name, containers=containers, **changes)


def said_of(
    job: Job, now: float = NOW, *, pods: Sequence[Pod] = (), **status_input: Any
) -> RLJobStatus:
    values = {"reading": a_reading(), **status_input}
    snapshot = a_snapshot(job=job, pods=tuple(pods), pools=(POOL,) if pods else ())
    return compute(StatusInput(snapshot=snapshot, now=now, **values))


SAYS: dict[str, tuple[Job, dict[str, Any], bool]] = {
    "inputs are checked": (a_job_object(), CHECKING, True),
    "samplers are waited for": (a_job_object(), WAITING, True),
    "the first attempt begins": (a_job_object(), BEGINNING, False),
    "something is wrong": (a_job_object(), STALLED, False),
    "something cannot be made": (a_job_object(), {**WAITING, "blocked_reason": "a webhook"}, False),
    "the bucket is away": (a_job_object(), {**WAITING, "reading": a_reading(bucket=AWAY)}, False),
    "the bucket is away from the first": (
        a_job_object(),
        {**CHECKING, "reading": a_reading(bucket=AWAY)},
        False,
    ),
    "it is suspended": (SUSPENDED, {"decision": Wait(why="Suspended")}, False),
    "it has been told something before": (
        a_job_object(RLJobStatus(observed_generation=1)),
        WAITING,
        False,
    ),
}


@pytest.mark.parametrize(("job", "status_input", "waits"), SAYS.values(), ids=SAYS.keys())
def test_only_what_needs_nobody_waits(job: Job, status_input: dict[str, Any], waits: bool) -> None:
    assert may_wait(job.status, said_of(job, **status_input)) is waits


ON_THEIR_WAY = {
    "scheduled": a_sampler("a", **DUE),
    "pulled": a_sampler("a", "ContainerCreating", **DUE),
    "staged": a_sampler("a", "PodInitializing", **DUE),
    "running": a_sampler("a", ready=False),
    "ready": a_sampler("a"),
}
IN_TROUBLE = {
    "fits no node": a_sampler("b", unscheduled="0/1 nodes: Insufficient gpu", **DUE),
    "image": a_sampler("b", "ImagePullBackOff", **DUE),
    "crashes": a_sampler("b", "CrashLoopBackOff", ready=False),
    "secret": a_sampler("b", "CreateContainerConfigError", **DUE),
}
PODS = st.lists(st.sampled_from([*ON_THEIR_WAY.values(), *IN_TROUBLE.values()]), max_size=3)


@given(PODS, st.sampled_from([CHECKING, WAITING]))
def test_what_keeps_a_pod_from_running_is_told_at_once(
    pods: list[Pod], status_input: dict[str, Any]
) -> None:
    job, named = a_job_object(), [replace(one, name=str(n)) for n, one in enumerate(pods)]
    enough = sum(one.ready for one in named) >= 2
    trouble = any(one.trouble() for one in named)
    said = said_of(job, pods=named, **status_input)
    assert may_wait(job.status, said) is (enough or not trouble)
    assert status_urgency.of_new_job(job.status, said)  # but for them it might


@pytest.mark.parametrize("kind", ["PoolAssigned", "Admitted", "Suspended", "Evicted"])
def test_a_condition_that_asks_for_something_is_told_at_once(kind: str) -> None:
    said = said_of(a_job_object(), **WAITING)
    asks = Condition(
        type=kind,
        status="False",
        reason="R",
        message="",
        observed_generation=1,
        last_transition_time=format_time(NOW),
    )
    asking = said.model_copy(update={"conditions": [*said.conditions, asks]})
    assert not may_wait(RLJobStatus(), asking)


class Told:
    """Jobs of which looks say something, as the reconciler lets them."""

    def __init__(self, seconds: float = 5.0) -> None:
        self.now = 100.0
        self.words = FirstWords(clock=lambda: self.now, seconds=seconds)
        self.stored: dict[Key, Job] = {}
        self.writes = 0

    def look(self, name: str = "job", uid: str = "u", **status_input: Any) -> float:
        key = Key("RLJob", "ns", name)
        there = self.stored.setdefault(key, a_job_object(meta=a_meta(name, uid=uid)))
        job = self.words.recalled(key, there)
        said = said_of(job, NOW + self.now, **status_input)
        wait = self.words.keep(key, job, said)
        if not wait and said != there.status:
            self.stored[key] = replace(there, status=said)
            self.writes += 1
            self.words.forget(key)
        return wait


def test_one_job_waits_for_a_moment_and_many_for_longer() -> None:
    told = Told()
    assert told.look("a", **WAITING) == 2.0
    told.now += 1.5
    assert told.look("a", **WAITING) == 0.5
    told.now += 0.5
    assert (told.look("a", **WAITING), told.writes) == (0.0, 1)
    told.now += 10
    waits = [told.look(f"b{number}", **WAITING) for number in range(100)]
    assert [waits[0], waits[19], waits[-1]] == [2.0, 4.0, 15.0]
    told.now += 2
    assert told.look("b0", **WAITING) == 13.0  # it has seen how many came with it
    for number in range(1, 100):
        told.look(f"b{number}", **BEGINNING)
    assert (len(told.words), told.writes) == (1, 100)
    assert told.look("b0", **WAITING) == 13.0  # and they have had their turns
    told.now += 13
    assert (told.look("b0", **WAITING), told.writes) == (0.0, 101)
    assert len(told.words) == 0


def test_a_job_that_begins_by_then_has_one_status() -> None:
    told = Told()
    told.look(**CHECKING)
    told.now += 1
    told.look(**WAITING)
    assert told.writes == 0
    assert told.look(**BEGINNING) == 0.0
    (job,) = told.stored.values()
    assert (told.writes, job.status.attempt) == (1, 1)


def test_another_job_of_the_name_has_words_of_its_own() -> None:
    told = Told()
    told.look(**WAITING)
    told.stored.clear()
    told.now += 1.5
    assert told.look(uid="other", **WAITING) == 2.0


def test_what_another_process_has_written_counts() -> None:
    told = Told()
    told.look(**WAITING)
    ((key, job),) = told.stored.items()
    written = replace(job, status=RLJobStatus(observed_generation=1, attempt=1))
    told.stored[key] = written
    assert told.words.recalled(key, written) == written
    assert len(told.words) == 0


def test_trouble_is_told_though_less_was_kept() -> None:
    told = Told()
    pods = [ON_THEIR_WAY["pulled"]]
    assert told.look(**WAITING, pods=pods) == 2.0
    told.now += 0.5
    assert told.look(**WAITING, pods=[*pods, IN_TROUBLE["image"]]) == 0.0
    (job,) = told.stored.values()
    ready = find(job.status.conditions, "Ready")
    assert ready is not None
    assert "ImagePullBackOff" in ready.message
    assert (told.writes, len(told.words)) == (1, 0)


STUCK = {**WAITING, "pods": [IN_TROUBLE["image"]]}
LOOKS = st.sampled_from([CHECKING, WAITING, STUCK, BEGINNING, STALLED])


@given(st.lists(st.tuples(st.floats(0, 9), LOOKS), min_size=1, max_size=12))
def test_what_is_kept_is_as_good_as_written(looks: list[tuple[float, dict[str, Any]]]) -> None:
    """Whatever is said in which order: the same comes of it, at the times that it had."""
    patient, prompt = Told(), Told(seconds=0.0)
    for seconds, status_input in looks:
        for one in (patient, prompt):
            one.now += seconds
            one.look(**status_input)
    patient.now += 15
    prompt.now += 15
    for one in (patient, prompt):
        one.look(**looks[-1][1])
    assert patient.stored == prompt.stored
    assert patient.writes <= prompt.writes
