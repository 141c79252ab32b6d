"""A queue admits and evicts at any time: pods hold quota or there are none."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rl_operator.kube.conditions import find, is_true
from rl_operator.kueue import admission
from rl_operator.state.attempt_records import is_over
from tests.examples import examples
from tests.kube import kueue
from tests.unit.rl_operator.jobs.test_life import (
    EVENTS,
    FAULTS,
    RULES,
    SPOILT,
    Event,
    wait,
    world_of,
)
from tests.unit.rl_operator.model_life import Life
from tests.unit.rl_operator.model_queue import POOL, WORKLOAD, QueuedLife


def queued(event: str) -> Event:
    def happen(life: Life) -> None:
        assert isinstance(life, QueuedLife)
        match event:
            case "admits":
                life.admit()
            case "evicts":
                life.evict()
            case "stops":
                life.evict("ClusterQueueStopped")
            case "goes on":
                life.requeue()
            case "deactivated":
                life.activate(active=False)
            case "activated":
                life.activate(active=True)

    return happen


def edit_scheduling(life: Life) -> None:
    """The user names another queue; the API server lets that be only while it may."""
    assert isinstance(life, QueuedLife)
    if life.queued and (life.suspend or life.status.attempt == 0):
        life.sections = {"scheduling": {"provider": "Kueue", "queueName": "other"}}
        life.version += 1


def leave_queue(life: Life) -> None:
    """The user asks no queue any more, while that may be changed."""
    if life.suspend or life.status.attempt == 0:
        life.sections = {"scheduling": {"provider": "None"}}
        life.version += 1


def ask_queue(life: Life) -> None:
    """The user asks a queue again; pods that are there would have no quota."""
    if not life.pods and (life.suspend or life.status.attempt == 0):
        life.sections = {"scheduling": {"provider": "Kueue", "queueName": "team"}}
        life.version += 1


def come_up(life: Life) -> None:
    """All that may happen has happened, and the queue had room."""
    assert isinstance(life, QueuedLife)
    life.settle()
    life.admit()
    life.settle()


QUEUE_EVENTS: dict[str, Event] = {
    "comes up": come_up,
    "the queue admits": queued("admits"),
    "the queue evicts": queued("evicts"),
    "the queue is stopped": queued("stops"),
    "the queue goes on": queued("goes on"),
    "an administrator deactivates it": queued("deactivated"),
    "an administrator activates it": queued("activated"),
    "another queue": edit_scheduling,
}
LEAVES: dict[str, Event] = {"no queue": leave_queue, "a queue again": ask_queue}
ALL = {**EVENTS, **QUEUE_EVENTS, **SPOILT}


def check(life: QueuedLife) -> None:
    """Whoever holds no quota has no pods."""
    if not life.holds_quota():
        left = [pod.name for pod in life.pods.values() if pod.live]
        assert not left or life.overdue(), f"{left} run without quota"
        assert life.cluster.objects.get(POOL, {"spec": {}})["spec"].get("admitted", 0) == 0


def let_in(life: QueuedLife) -> None:
    """The user, the queue and its administrators let the job run."""
    life.spoil("")
    life.set_suspend(False)
    for _ in range(4):
        life.settle()
        life.activate(active=True)
        life.requeue()
        life.admit()
        wait(life)
    life.settle()


@example(
    [
        "crash after three actions",
        "the queue admits",
        "crash after one action",
        "crash after one action",
        "an administrator deactivates it",
        "crash after three actions",
    ]
)
@example(["comes up", "suspend", "the spec is refused"])
@example(["comes up", "the queue evicts", "suspend", "resume"])
@example(["comes up", "the queue evicts", "reconcile", "reconcile", "reconcile"])
@example(["comes up", "succeed", "reconcile", "reconcile", "reconcile"])
@example(["settle", "the queue admits", "reconcile", "reconcile", "the queue evicts", "settle"])
@example(["comes up", "the spec is refused", "the queue evicts", "settle"])
@example(["comes up", "the spec cannot be read", "the queue evicts", "settle"])
@example(["comes up", "the spec cannot be read", "suspend", "settle"])
@example(["settle", "the spec is refused", "the queue admits", "settle"])
@settings(deadline=None, max_examples=examples(30))
@given(st.lists(st.sampled_from(sorted(ALL)), max_size=30))
def test_pods_hold_quota_in_every_history(history: list[str]) -> None:
    life = QueuedLife(backoffLimit=2, failurePolicy={"rules": RULES})
    for event in history:
        ALL[event](life)
        check(life)
        assert len(set(life.live_trainers())) <= 1 or life.overdue(), "two attempts at a time"
    life.settle()
    before = life.writes
    life.settle()
    assert life.writes == before, "a second look writes"
    check(life)
    if life.spoilt and not any(pod.live for pod in life.pods.values()):
        assert not life.holds_quota(), "what cannot run keeps quota from others"
    let_in(life)
    check(life)
    status = life.status
    ended = is_true(status.conditions, "Complete") or is_true(status.conditions, "Failed")
    if ended:
        assert not life.holds_quota()
    else:
        assert life.live_trainers() == [status.attempt]
        assert is_true(status.conditions, "Admitted")


@example(["no queue", "the status is lost", "a queue again", "reconcile", "crash after one action"])
@example(["the status is lost", "no queue", "the queue admits"])
@example(["comes up", "suspend", "reconcile", "no queue", *["reconcile"] * 3])
@example(["settle", "no queue", "settle", "suspend", "settle", "a queue again", "resume"])
@settings(deadline=None, max_examples=examples(25))
@given(st.lists(st.sampled_from(sorted({**ALL, **LEAVES})), max_size=25))
def test_a_job_that_leaves_its_queue_leaves_no_quota_behind(history: list[str]) -> None:
    life = QueuedLife(backoffLimit=2)
    for event in history:
        held = life.holds_quota()
        {**ALL, **LEAVES}[event](life)
        if life.queued or (held and life.suspend):
            check(life)  # of one that is not suspended and asks no queue pods need no quota
    life.settle()
    before = life.writes
    life.settle()
    assert life.writes == before, "a second look writes"
    if not life.queued:
        assert not life.holds_quota()
    if life.suspend:
        assert not [pod for pod in life.pods.values() if pod.live]


@settings(deadline=None, max_examples=examples(30))
@given(st.lists(st.sampled_from(["settle", "others work", "crash at once", *QUEUE_EVENTS])))
def test_evictions_do_not_count_as_failures(history: list[str]) -> None:
    life = QueuedLife(backoffLimit=0)
    for event in history:
        ALL[event](life)
    let_in(life)
    assert (life.status.failures, find(life.status.conditions, "Failed")) == (0, None)
    assert life.live_trainers() == [life.status.attempt]


def rest_of(life: QueuedLife) -> dict[str, object]:
    """The world, but of a job that is over what its last look was told of the queue."""
    world = world_of(life)
    if is_over(life.status):
        conditions = [
            condition for condition in world["conditions"] if condition[0] not in admission.SHOWN
        ]
        world["conditions"] = conditions
    return world


@example(["comes up", "succeed", "crash after one action", "an administrator deactivates it"], [])
@example(
    [
        "comes up",
        "trainer must not be retried",
        "the status is lost",
        "an administrator deactivates it",
    ],
    ["a stale look"],
)  # it was over before it was deactivated: what was said at the end stands
@example(["crash at once", "another queue"], ["a stale look"])
@example(["crash at once", "the spec cannot be read"], ["a stale look"])
@example(
    [
        "crash after three actions",
        "an administrator deactivates it",
        "the spec cannot be read",
    ],
    ["409, 429 or 500 after one action", "a stale look"],
)  # its Workload, which says so, goes with the look at what cannot be read
@settings(deadline=None, max_examples=examples(25))
@given(
    st.lists(st.sampled_from(sorted(ALL)), max_size=15),
    st.lists(st.sampled_from(sorted(FAULTS)), max_size=15),
)
def test_faults_lead_to_the_same_rest(history: list[str], faults: list[str]) -> None:
    """Lost and repeated looks, refused writes, stale reads and a clock that jumps."""
    life = QueuedLife(backoffLimit=2, failurePolicy={"rules": RULES})
    for event in history:
        ALL[event](life)
    spared = copy.deepcopy(life)
    for fault in faults:
        FAULTS[fault](life)
        check(life)
    stale = any(fault.startswith("a stale look") for fault in faults)
    if stale:
        # As one before the edit that spoilt it: what that made stays until it is mended.
        for model in (spared, life):
            model.settle()
            model.spoil("")
    for model in (spared, life):
        model.settle()
        wait(model)
        model.settle()
    seen = rest_of if stale else world_of
    assert seen(life) == seen(spared)
    assert life.holds_quota() == spared.holds_quota()


def test_success_counts_when_the_trainer_ended_before_its_eviction() -> None:
    """What is told of the queue may be newer than what is told of pods."""
    life = QueuedLife()
    come_up(life)
    before = life.snapshot()
    EVENTS["succeed"](life)
    life.evict()
    for made in (True, False):  # the suspension is recorded before the trainer is deleted
        now = life.snapshot()
        life.earlier = dataclasses.replace(now, pods=before.pods, trainers=before.trainers)
        life.reconcile(stale="all")
        assert (("PyTorchJob", "job-1") in life.cluster.objects) is made
    life.settle()
    assert is_true(life.status.conditions, "Complete")
    assert (life.status.attempt, life.status.failures, life.holds_quota()) == (1, 0, False)


def test_an_eviction_gives_the_quota_back_when_the_pods_have_gone() -> None:
    life = QueuedLife()
    life.settle()
    assert life.status.phase == "Queued"
    assert POOL not in life.cluster.objects
    life.admit()
    life.settle()
    assert (life.live_trainers(), life.status.attempt) == ([1], 1)
    assert kueue.condition(life.cluster.objects[WORKLOAD], "PodsReady")["status"] == "True"
    life.evict()
    life.reconcile()
    life.others()
    life.reconcile()
    assert find(life.status.conditions, "Suspended") is not None
    assert not is_true(life.status.conditions, "Suspended")
    assert life.holds_quota()  # the pods are still there
    life.settle()
    workload = life.cluster.objects[WORKLOAD]
    assert not life.holds_quota()
    assert "admission" not in workload["status"]
    assert kueue.condition(workload, "Requeued")["status"] == "True"
    assert kueue.condition(workload, "Evicted")["status"] == "True"
    assert (life.pods, life.status.phase) == ({}, "Queued")
    life.admit()
    life.settle()
    assert (life.live_trainers(), life.status.failures) == ([2], 0)


def remove_workload(life: QueuedLife) -> None:
    """What an administrator does."""
    del life.cluster.objects[WORKLOAD]


@pytest.mark.parametrize(
    "takes_back",
    [QueuedLife.evict, functools.partial(QueuedLife.activate, active=False), remove_workload],
    ids=["evicted", "deactivated", "deleted"],
)
def test_a_finished_job_keeps_its_samplers_as_long_as_its_queue_lets_it(
    takes_back: Callable[[QueuedLife], None],
) -> None:
    life = QueuedLife(cleanupPolicy="None")
    come_up(life)
    EVENTS["succeed"](life)
    life.settle()
    assert is_true(life.status.conditions, "Complete")
    assert (life.holds_quota(), POOL in life.cluster.objects) == (True, True)
    takes_back(life)
    life.reconcile()
    assert life.workload is None or life.holds_quota(), "pods are still there"
    assert POOL not in life.cluster.objects
    life.settle()
    assert [pod for pod in life.pods.values() if pod.component == "sampler"] == []
    assert not life.holds_quota()
    if life.workload is not None:
        assert kueue.condition(life.workload, "Finished")["status"] == "True"


def test_kept_samplers_that_are_replaced_keep_their_quota() -> None:
    life = QueuedLife(cleanupPolicy="None")
    come_up(life)
    EVENTS["succeed"](life)
    life.settle()
    for pod in [name for name, pod in life.pods.items() if pod.component == "sampler"]:
        del life.pods[pod]  # as a look may see them between two pods
    life.reconcile()
    life.settle()
    assert (life.holds_quota(), POOL in life.cluster.objects) == (True, True)
    assert [pod for pod in life.pods.values() if pod.component == "sampler"]


def test_an_admission_that_cannot_be_used_is_given_back_until_somebody_acts() -> None:
    elsewhere = {"nodeSelector": {"pool": "mine"}}
    life = QueuedLife()
    life.sections["trainer"] = elsewhere
    for _ in range(3):
        life.settle()
        life.admit()
    life.settle()
    assert not life.holds_quota()
    stalled = find(life.status.conditions, "Stalled")
    assert stalled is not None
    assert stalled.reason == "FlavorConflict"
    assert "nodeSelector pool = 'mine' of pod set trainer" in stalled.message
    assert life.workload is not None
    assert not life.workload["spec"]["active"]

    life.sections["trainer"] = {}
    life.version += 1
    life.settle()
    life.admit()
    life.settle()
    assert (life.live_trainers(), life.holds_quota()) == ([1], True)


def test_a_job_queues_again_once_the_group_that_could_not_be_placed_is_removed() -> None:
    """The Workload that was given up would cover what the job asks for then."""
    main = {"name": "main", "template": {"autoscaling": {"minReplicas": 2}}}
    extra = {"name": "extra", "template": {"nodeSelector": {"pool": "mine"}}}
    life = QueuedLife()
    life.sections["samplers"] = [main, extra]
    come_up(life)
    stalled = find(life.status.conditions, "Stalled")
    assert stalled is not None
    assert stalled.reason == "FlavorConflict"
    assert "set spec.active of Workload rljob-job to true" in stalled.message

    life.sections["lifecycle"] = {"backoffLimit": 1}  # an edit that changes no pod
    life.version += 1
    life.settle()
    assert life.workload is not None
    assert not life.workload["spec"]["active"]

    life.sections["samplers"] = [main]
    life.version += 1
    come_up(life)
    assert (life.live_trainers(), life.holds_quota()) == ([1], True)


def test_a_deactivation_by_others_is_not_explained_by_an_earlier_admission() -> None:
    life = QueuedLife()
    life.lost_flavors = {"spot"}
    come_up(life)
    stalled = find(life.status.conditions, "Stalled")
    assert stalled is not None
    assert stalled.reason == "FlavorNotFound"

    life.lost_flavors = set()
    life.activate(active=True)
    come_up(life)
    assert life.live_trainers() == [1]

    life.activate(active=False)
    life.settle()
    assert (life.status.phase, find(life.status.conditions, "Stalled")) == ("Queued", None)
    ready = find(life.status.conditions, "Ready")
    assert ready is not None
    assert ready.reason == "Deactivated"


def test_an_admission_is_recorded_although_a_flavor_of_a_removed_group_is_gone() -> None:
    main, extra = {"name": "main"}, {"name": "extra"}
    life = QueuedLife()
    life.sections["samplers"] = [main, extra]
    life.settle()
    assert life.workload is not None
    status = kueue.admitted(life.workload)
    for assignment in status["admission"]["podSetAssignments"]:
        if assignment["name"] == "sampler-extra":
            assignment["flavors"] = {"cpu": "old"}
    life.set_workload(status)
    life.lost_flavors = {"old"}
    life.sections["samplers"] = [main]
    life.version += 1
    life.settle()
    assert kueue.condition(life.workload, "PodsReady")["status"] == "True"
    before = life.writes
    life.reconcile()
    assert life.writes == before


def test_samplers_that_left_the_quota_are_not_placed_by_it() -> None:
    """The flavor of their earlier quota may be gone."""
    life = QueuedLife()
    life.settle()
    assert life.workload is not None
    status = kueue.admitted(life.workload)
    for assignment in status["admission"]["podSetAssignments"]:
        if assignment["name"] == "sampler-main":
            assignment["flavors"] = {"cpu": "old"}
    life.set_workload(status)
    life.lost_flavors = {"old"}
    life.sections["scheduling"] |= {"samplerQuota": "None"}
    life.version += 1
    life.settle()
    assert life.live_trainers() == [1]
    template = life.cluster.objects[POOL]["spec"]["template"]
    assert template.get("nodeSelector", {}) == {}


def test_a_suspension_takes_the_job_out_of_its_queue() -> None:
    life = QueuedLife()
    life.settle()
    life.admit()
    life.settle()
    life.set_suspend(True)
    life.reconcile()
    assert life.holds_quota()
    life.settle()
    assert (life.workload, life.status.phase) == (None, "Suspended")
    life.set_suspend(False)
    life.settle()
    assert (life.holds_quota(), life.status.phase) == (False, "Queued")


def test_deleted_workload_is_recreated_once_the_pods_are_gone() -> None:
    life = QueuedLife()
    life.settle()
    life.admit()
    life.settle()
    del life.cluster.objects[WORKLOAD]
    for _ in range(20):
        life.reconcile()
        assert life.workload is None or not life.pods
        life.others()
        life.end_deleted_pods()
    assert (life.holds_quota(), life.status.phase) == (False, "Queued")
    assert life.workload is not None
