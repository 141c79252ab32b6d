"""Urgent changes of a status are written at once, others at most once per interval and object."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_contracts.spec.pool_status import AssignmentStatus, SamplerPoolStatus
from rl_contracts.spec.status import Condition, RLJobStatus
from rl_operator.apply.status_writer import StatusWriter, is_urgent_for_job, is_urgent_for_pool
from rl_operator.kube.kinds import RLJOB, Key
from tests.unit.rl_operator.builders import a_failure, a_meta


def a_condition(kind: str, status: Any = "True", reason: str = "R", message: str = "") -> Condition:
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        last_transition_time="2026-01-01T00:00:00Z",
        observed_generation=1,
    )


JOB = RLJobStatus(
    observed_generation=1,
    phase="Starting",
    attempt=1,
    conditions=[
        a_condition("Ready", "False"),
        a_condition("SamplersReady", "False"),
        a_condition("Stalled", "False"),
    ],
)
POOL = SamplerPoolStatus(
    observed_generation=1, replicas=3, conditions=[a_condition("Ready", "False")]
)


def with_conditions(*conditions: Condition) -> dict[str, Any]:
    """The job's conditions, some of them others."""
    new = {condition.type: condition for condition in conditions}
    return {
        "conditions": [new.pop(condition.type, condition) for condition in JOB.conditions]
        + [*new.values()]
    }


CHANGES: dict[str, tuple[dict[str, Any], bool]] = {
    "progress": ({"progress": JOB.progress.model_copy(update={"step": 3})}, False),
    "published": ({"weights": JOB.weights.model_copy(update={"version": 3})}, False),
    "pods": ({"samplers": JOB.samplers.model_copy(update={"ready": 2})}, False),
    "a trainer's pod": ({"trainer": JOB.trainer.model_copy(update={"ready": 1})}, False),
    "words": (with_conditions(a_condition("Ready", "False", message="1 of 3")), False),
    "a part": (with_conditions(a_condition("SamplersReady")), False),
    "a part that is new": (with_conditions(a_condition("PolicyPublished")), False),
    "the whole": (with_conditions(a_condition("Ready")), True),
    "why not": (with_conditions(a_condition("Ready", "False", "TrainerStarting")), True),
    "what to do": (with_conditions(a_condition("Stalled", "False", message="Mend it.")), True),
    "an unknown one": (with_conditions(a_condition("Suspended")), True),
    "phase": ({"phase": "Running"}, True),
    "attempt": ({"attempt": 2}, True),
    "failure": ({"last_failure": a_failure()}, True),
    "a lost sampler": (
        {"samplers": JOB.samplers.model_copy(update={"restarts": 1})},
        True,
    ),
    "generation": ({"observed_generation": 2}, True),
}


@pytest.mark.parametrize(("change", "expected"), CHANGES.values(), ids=CHANGES.keys())
def test_job_change_is_urgent_only_if_somebody_waits_for_it(
    change: dict[str, Any], expected: bool
) -> None:
    assert is_urgent_for_job(JOB, JOB.model_copy(update=change)) is expected


POOL_CHANGES: dict[str, tuple[dict[str, Any], bool]] = {
    "pods": ({"replicas": 4, "ready": 2, "serving": 1, "unavailable": 2}, False),
    "available": ({"conditions": [*POOL.conditions, a_condition("Available")]}, False),
    "ready": ({"conditions": [a_condition("Ready")]}, True),
    "whom it serves": ({"assignment_epoch": 2}, True),
    "replaced": ({"replaced": 1}, True),
}


@pytest.mark.parametrize(("change", "expected"), POOL_CHANGES.values(), ids=POOL_CHANGES.keys())
def test_pool_change_is_urgent_only_if_somebody_waits_for_it(
    change: dict[str, Any], expected: bool
) -> None:
    assert is_urgent_for_pool(POOL, POOL.model_copy(update=change)) is expected


HOLDER = AssignmentStatus(job="two", uid="u2", run="u2", since="2026-01-01T00:00:00Z")


def test_first_job_status_is_urgent() -> None:
    assert is_urgent_for_job(RLJobStatus(), JOB)


NEW = SamplerPoolStatus()
FIRST: dict[str, tuple[dict[str, Any], bool]] = {
    "nothing to say": ({"conditions": [a_condition("Ready", "False", "PodsStarting")]}, False),
    "pods": ({"replicas": 3, "ready": 1, "conditions": [a_condition("Available")]}, False),
    "ready": ({"conditions": [a_condition("Ready")]}, True),
    "what to do": ({"conditions": [a_condition("Stalled")]}, True),
    "whom it serves": ({"assignment_epoch": 1}, True),
    "who waits": ({"waiting_jobs": 1}, True),
    "who shares it": ({"beside": [HOLDER]}, True),
    "replaced": ({"replaced": 1}, True),
}


@pytest.mark.parametrize(("change", "expected"), FIRST.values(), ids=FIRST.keys())
def test_first_pool_status_is_urgent_only_with_news(change: dict[str, Any], expected: bool) -> None:
    after = NEW.model_copy(update={"observed_generation": 1, **change})
    assert is_urgent_for_pool(NEW, after) is expected


def test_first_pool_status_with_trouble_is_urgent() -> None:
    starting = [
        a_condition("Ready", "False", "PodsStarting", "0 of 1 pods are ready. exceeded quota")
    ]
    after = NEW.model_copy(update={"observed_generation": 1, "conditions": starting})
    assert is_urgent_for_pool(NEW, after, has_trouble=True)
    # Later messages are not urgent: they may change all the time.
    later = after.model_copy(update={"ready": 1})
    assert not is_urgent_for_pool(after, later, has_trouble=True)


RUNNING = JOB.model_copy(update={"phase": "Running"})


class Server:
    """Keeps the status that was applied last, and counts writes."""

    def __init__(self) -> None:
        self.now, self.writes = 100.0, 0
        self.stored: dict[str, RLJobStatus] = {}
        api: Any = self
        self.writer = StatusWriter(api, clock=lambda: self.now, seconds=5.0)

    def apply(self, _: object, manifest: dict[str, Any], **__: Any) -> None:
        self.writes += 1
        name = manifest["metadata"]["name"]
        self.stored[name] = RLJobStatus.model_validate(manifest["status"])

    def write(self, after: RLJobStatus, *, name: str = "job", urgent: bool = False) -> float | None:
        before = self.stored.get(name, RUNNING)
        return self.writer.write(RLJOB, a_meta(name), before=before, after=after, urgent=urgent)


def at_step(step: int) -> RLJobStatus:
    return RUNNING.model_copy(
        update={"progress": RUNNING.progress.model_copy(update={"step": step})}
    )


def test_changes_that_are_not_urgent_are_written_once_per_interval() -> None:
    server = Server()
    assert server.write(at_step(1), urgent=True) is None
    server.now += 0.75
    assert server.write(at_step(2)) == 4.25
    server.now += 4.25
    assert server.write(at_step(3)) is None
    assert server.write(at_step(4)) == 5.0
    assert server.writes == 2
    assert server.stored["job"].progress.step == 3


def test_first_status_without_news_waits_until_pods_are_usually_ready() -> None:
    server = Server()
    server.stored["job"] = RLJobStatus()
    assert server.write(at_step(1)) == 15.0
    server.now += 6
    assert server.write(at_step(2)) == 9.0
    assert server.write(at_step(2), urgent=True) is None
    assert server.write(at_step(3)) == 5.0


def test_counters_of_a_job_that_starts_wait_two_intervals() -> None:
    server, starting = Server(), {"observed_generation": 1, "phase": "Starting"}
    server.stored["job"] = RUNNING.model_copy(update=starting)
    assert server.write(at_step(1).model_copy(update=starting)) == 10.0


def test_urgent_changes_are_written_at_once() -> None:
    server = Server()
    for step in range(1, 4):
        assert server.write(at_step(step), urgent=True) is None
    assert server.writes == 3


def test_status_that_does_not_differ_is_never_written() -> None:
    server = Server()
    assert server.write(RUNNING) is None
    assert server.write(RUNNING, urgent=True) is None
    assert server.writes == 0


def test_new_process_waits_one_interval_from_the_first_change_that_it_sees() -> None:
    server = Server()
    assert server.write(RUNNING) is None  # nothing changed: no interval begins
    server.now += 60
    assert server.write(at_step(1)) == 5.0
    server.now += 3
    assert server.write(at_step(2)) == 2.0
    server.now += 2
    assert server.write(at_step(2)) is None
    assert server.writes == 1


def test_interval_is_per_object() -> None:
    server = Server()
    assert server.write(at_step(1), name="a", urgent=True) is None
    server.now += 3
    assert (server.write(at_step(2), name="a"), server.write(at_step(2), name="b")) == (2.0, 5.0)


def test_deleted_objects_are_forgotten() -> None:
    server = Server()
    for number in range(100):
        server.write(at_step(1), name=f"job{number}", urgent=True)
        server.writer.forget(Key("RLJob", "ns", f"job{number}"))
    assert len(server.writer._written_at) == 0


CHANGE = st.tuples(st.floats(0, 9), st.integers(1, 3), st.booleans())


@given(st.lists(CHANGE, min_size=1, max_size=12))
def test_batched_changes_end_in_the_same_status_with_fewer_writes(
    changes: list[tuple[float, int, bool]],
) -> None:
    batched, prompt = Server(), Server()
    for seconds, step, urgent in changes:
        batched.now += seconds
        batched.write(at_step(step), urgent=urgent)
        prompt.write(at_step(step), urgent=True)
    last = at_step(changes[-1][1])
    wait = batched.write(last)
    batched.now += wait or 0.0
    assert batched.write(last) is None, "the wait that was returned was too short"
    assert batched.stored == prompt.stored
    assert batched.writes <= prompt.writes
