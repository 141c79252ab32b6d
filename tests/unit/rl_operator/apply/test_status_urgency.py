"""Which changes of a status are written at once, and which ones are gathered."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from rl_contracts.spec.status import Condition, RLJobStatus, SamplerPoolStatus
from rl_operator.apply import status_urgency
from rl_operator.apply.status_urgency import Patience
from rl_operator.apply.status_writer import StatusWriter
from rl_operator.kube.kinds import RLJOB
from tests.unit.rl_operator.builders import a_failure, a_meta


def said(kind: str, status: Any = "True", reason: str = "R", message: str = "") -> Condition:
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
    conditions=[said("Ready", "False"), said("SamplersReady", "False"), said("Stalled", "False")],
)
POOL = SamplerPoolStatus(observed_generation=1, replicas=3, conditions=[said("Ready", "False")])


def told(*conditions: Condition) -> dict[str, Any]:
    """The job's conditions, some of them others."""
    new = {condition.type: condition for condition in conditions}
    return {
        "conditions": [new.pop(condition.type, condition) for condition in JOB.conditions]
        + [*new.values()]
    }


CHANGES: dict[str, tuple[dict[str, Any], Patience]] = {
    "progress": ({"progress": JOB.progress.model_copy(update={"step": 3})}, Patience.LONG),
    "published": ({"weights": JOB.weights.model_copy(update={"version": 3})}, Patience.LONG),
    "pods": ({"samplers": JOB.samplers.model_copy(update={"ready": 2})}, Patience.LONG),
    "a trainer's pod": ({"trainer": JOB.trainer.model_copy(update={"ready": 1})}, Patience.LONG),
    "words": (told(said("Ready", "False", message="1 of 3")), Patience.LONG),
    "a part": (told(said("SamplersReady")), Patience.MOMENT),
    "a part that is new": (told(said("PolicyPublished")), Patience.MOMENT),
    "the whole": (told(said("Ready")), Patience.NONE),
    "why not": (told(said("Ready", "False", "TrainerStarting")), Patience.NONE),
    "what to do": (told(said("Stalled", "False", message="Mend it.")), Patience.NONE),
    "an unknown one": (told(said("Suspended")), Patience.NONE),
    "phase": ({"phase": "Running"}, Patience.NONE),
    "attempt": ({"attempt": 2}, Patience.NONE),
    "failure": ({"last_failure": a_failure()}, Patience.NONE),
    "a lost sampler": (
        {"samplers": JOB.samplers.model_copy(update={"restarts": 1})},
        Patience.NONE,
    ),
    "generation": ({"observed_generation": 2}, Patience.NONE),
}


@pytest.mark.parametrize(("change", "expected"), CHANGES.values(), ids=CHANGES.keys())
def test_of_a_job(change: dict[str, Any], expected: Patience) -> None:
    assert status_urgency.of_job(JOB, JOB.model_copy(update=change)) == expected


POOL_CHANGES: dict[str, tuple[dict[str, Any], Patience]] = {
    "pods": ({"replicas": 4, "ready": 2, "serving": 1, "unavailable": 2}, Patience.LONG),
    "available": ({"conditions": [*POOL.conditions, said("Available")]}, Patience.MOMENT),
    "ready": ({"conditions": [said("Ready")]}, Patience.NONE),
    "whom it serves": ({"assignment_epoch": 2}, Patience.NONE),
    "replaced": ({"replaced": 1}, Patience.NONE),
}


@pytest.mark.parametrize(("change", "expected"), POOL_CHANGES.values(), ids=POOL_CHANGES.keys())
def test_of_a_pool(change: dict[str, Any], expected: Patience) -> None:
    assert status_urgency.of_pool(POOL, POOL.model_copy(update=change)) == expected


NEW = SamplerPoolStatus()
FIRST: dict[str, tuple[dict[str, Any], Patience]] = {
    "nothing to say": ({"conditions": [said("Ready", "False", "PodsStarting")]}, Patience.FIRST),
    "pods": ({"replicas": 3, "ready": 1, "conditions": [said("Available")]}, Patience.FIRST),
    "ready": ({"conditions": [said("Ready")]}, Patience.NONE),
    "what to do": ({"conditions": [said("Stalled")]}, Patience.NONE),
    "whom it serves": ({"assignment_epoch": 1}, Patience.NONE),
    "who waits": ({"waiting_jobs": 1}, Patience.NONE),
    "replaced": ({"replaced": 1}, Patience.NONE),
}


@pytest.mark.parametrize(("change", "expected"), FIRST.values(), ids=FIRST.keys())
def test_of_a_pool_that_has_said_nothing_yet(change: dict[str, Any], expected: Patience) -> None:
    after = NEW.model_copy(update={"observed_generation": 1, **change})
    assert status_urgency.of_pool(NEW, after) == expected


def test_a_new_pool_in_trouble_does_not_wait_for_its_pods() -> None:
    starting = [said("Ready", "False", "PodsStarting", "0 of 1 pods are ready. exceeded quota")]
    after = NEW.model_copy(update={"observed_generation": 1, "conditions": starting})
    assert status_urgency.of_pool(NEW, after, trouble="exceeded quota") == Patience.NONE
    # Once it has said something, its words are as any other's: they may change all the time.
    later = after.model_copy(update={"ready": 1})
    assert status_urgency.of_pool(after, later, trouble="exceeded quota") == Patience.LONG


class Writes:
    """Counts."""

    def __init__(self) -> None:
        self.written = 0

    def apply(self, *_: Any, **__: Any) -> None:
        self.written += 1


def test_changes_are_gathered_since_the_last_write() -> None:
    now, cluster = [100.0], Writes()
    api: Any = cluster
    writer = StatusWriter(api, clock=lambda: now[0], seconds=5.0)

    def write(change: dict[str, Any], wish: Patience) -> float | None:
        after = JOB.model_copy(update=change)
        return writer.write(RLJOB, a_meta(), before=JOB, after=after, patience=wish)

    assert write({}, Patience.LONG) is None
    assert cluster.written == 0
    assert write({"attempt": 2}, Patience.NONE) is None
    now[0] += 0.75
    assert write({"attempt": 3}, Patience.LONG) == 4.25
    assert write({"attempt": 3}, Patience.MOMENT) == 1.0
    now[0] += 0.75
    assert write({"attempt": 4}, Patience.MOMENT) == 0.25  # since it was first seen
    assert cluster.written == 1
    now[0] += 0.25
    assert write({"attempt": 4}, Patience.MOMENT) is None
    assert write({"attempt": 5}, Patience.NONE) is None
    assert cluster.written == 3
    assert write({"attempt": 6}, Patience.FIRST) == 15.0  # since it was first seen, too
    now[0] += 15
    assert write({"attempt": 6}, Patience.FIRST) is None
    assert cluster.written == 4


def test_numbers_that_a_former_process_has_written_are_written_by_and_by() -> None:
    now, cluster = [100.0], Writes()
    api: Any = cluster
    writer = StatusWriter(api, clock=lambda: now[0], seconds=5.0)
    changed = JOB.model_copy(update={"attempt": 2})

    def write(number: int) -> float | None:
        meta = a_meta(uid=f"u{number}")
        return writer.write(RLJOB, meta, before=JOB, after=changed, patience=Patience.LONG)

    assert [write(number) for number in range(3)] == pytest.approx([5.0, 5.1, 5.2])
    now[0] += 5.15
    assert [write(number) is None for number in range(3)] == [True, True, False]
    assert cluster.written == 2
    assert write(3) == 5.0  # those before it have had their turns


def test_what_was_put_off_and_has_come_to_nothing_is_forgotten() -> None:
    now, cluster = [100.0], Writes()
    api: Any = cluster
    writer = StatusWriter(api, clock=lambda: now[0], seconds=5.0)
    changed = JOB.model_copy(update={"attempt": 2})

    def write(after: RLJobStatus) -> float | None:
        return writer.write(RLJOB, a_meta(), before=JOB, after=after, patience=Patience.MOMENT)

    assert write(changed) == 1.0
    assert write(JOB) is None
    now[0] += 60
    assert write(changed) == 1.0
    assert cluster.written == 0


def test_what_was_written_of_objects_that_are_gone_is_forgotten() -> None:
    now, cluster = [100.0], Writes()
    api: Any = cluster
    writer = StatusWriter(api, clock=lambda: now[0], seconds=5.0)
    changed = JOB.model_copy(update={"attempt": 2})
    for number in range(1000):
        meta = a_meta(uid=f"u{number}")
        writer.write(RLJOB, meta, before=JOB, after=changed, patience=Patience.NONE)
        now[0] += 60
    assert cluster.written == 1000
    assert len(writer._written) == 61


def test_parts_of_many_objects_at_once_wait_for_longer() -> None:
    now, cluster = [100.0], Writes()
    api: Any = cluster
    writer = StatusWriter(api, clock=lambda: now[0], seconds=5.0)
    changed = JOB.model_copy(update={"attempt": 2})

    def write(number: int, wish: Patience = Patience.MOMENT) -> float | None:
        meta = a_meta(uid=f"u{number}")
        return writer.write(RLJOB, meta, before=JOB, after=changed, patience=wish)

    waits = [write(number) for number in range(30)]
    assert (waits[4], waits[9], waits[29]) == (1.0, 2.0, 5.0)
    now[0] += 4
    assert write(0) == 1.0
    for number in range(1, 30):
        assert write(number, Patience.NONE) is None
    assert write(0) is None  # it has waited for longer than one alone
    assert cluster.written == 30
    for number in range(40):
        write(number)
    now[0] += 61  # nobody asks for them again: they have gone
    assert [write(100) for _ in range(21)][-1] == 1.0


def test_one_write_among_many_objects_takes_no_more_than_one_among_few() -> None:
    now, cluster = [100.0], Writes()
    api: Any = cluster
    writer = StatusWriter(api, clock=lambda: now[0], seconds=5.0)
    changed = JOB.model_copy(update={"attempt": 2})

    def write(number: int) -> None:
        meta = a_meta(uid=f"u{number}")
        writer.write(RLJOB, meta, before=JOB, after=changed, patience=Patience.NONE)

    def taken() -> int:
        """Bytes that one write holds at most at a time."""
        tracemalloc.start()
        try:
            write(0)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    write(0)
    among_few = taken()
    for number in range(5000):
        write(number)
    assert taken() < 2 * among_few
