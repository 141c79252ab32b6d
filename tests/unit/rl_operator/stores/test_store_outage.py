"""What a status says while the document store is away, and how often it is written."""

from __future__ import annotations

import dataclasses
from typing import Any

from rl_contracts.spec.status import ProgressStatus
from rl_operator.apply.status_writer import is_urgent_for_job
from rl_operator.kube.kinds import RLJOB
from rl_operator.state.progress import NOT_CHECKED, REACHED, Reading
from rl_operator.status.job_conditions import compute
from rl_operator.status.status_input import StatusInput
from tests.samples.documents import a_step
from tests.unit.rl_operator.builders import NOW, a_job_object, a_reading, a_snapshot
from tests.unit.rl_operator.status_inputs import (
    AT_WORK,
    COMPLETE,
    DOWN,
    RUN,
    SAMPLER,
    a_status_input,
)
from tests.unit.rl_operator.written import outage, written

AWAY = Reading(store=DOWN, bucket=REACHED)
LATEST = a_step(3, reward_mean=0.5, time=NOW, staleness_max=2)
TOLD = a_reading(RUN.model_copy(update={"latest": LATEST}), samplers=(SAMPLER,), backlog=7)
NOW_ONLY = ("backlog", "tokens_per_second", "seconds_left", "phase")
"""Fields of the progress that are about now."""


def about_now(progress: ProgressStatus) -> tuple[object, ...]:
    return tuple(getattr(progress, field) for field in NOW_ONLY)


def reached(progress: ProgressStatus) -> dict[str, Any]:
    return progress.model_dump(exclude=set(NOW_ONLY))


def test_no_number_of_now_is_told_while_the_store_is_away() -> None:
    before = compute(a_status_input(reading=TOLD))
    assert about_now(before.progress) == (7, 10.0, 570, "training")
    away = compute(a_status_input(before, AWAY))
    assert about_now(away.progress) == (None, None, None, "")
    stored = away.progress.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert stored.keys().isdisjoint({"backlog", "tokensPerSecond", "secondsLeft"})
    back = compute(a_status_input(away, TOLD))
    assert back.progress == before.progress


def test_what_the_run_has_reached_stands_while_the_store_is_away() -> None:
    before = compute(a_status_input(reading=TOLD))
    away = compute(a_status_input(before, AWAY))
    assert reached(away.progress) == reached(before.progress)
    assert (away.progress.step, away.progress.reward, away.progress.staleness) == (3, 0.5, 2)
    assert away.progress.last_progress_time is not None, "as of when"


def test_nothing_is_sampled_where_no_pod_is_whatever_the_store_says() -> None:
    before = compute(a_status_input(reading=TOLD))
    nobody = a_status_input(before, AWAY, parts={**AT_WORK, "pods": ()})
    assert about_now(compute(nobody).progress) == (None, 0.0, None, "")


def test_of_a_run_whose_spec_cannot_be_read_nobody_asks() -> None:
    before = compute(a_status_input(reading=TOLD))
    job = dataclasses.replace(a_job_object(before), spec=None, spec_error="no such field")
    snapshot = dataclasses.replace(a_snapshot(before, **AT_WORK), job=job)
    after = compute(StatusInput(snapshot=snapshot, now=NOW))
    assert about_now(after.progress) == (None, None, None, "")
    assert reached(after.progress) == reached(before.progress)
    assert (after.weights.version, after.weights.lag) == (4, None)


def test_a_run_that_is_not_begun_has_no_backlog() -> None:
    new = compute(a_status_input(reading=a_reading(None)))
    assert about_now(new.progress) == (0, 0.0, None, "")
    unknown = compute(a_status_input(reading=Reading(store=NOT_CHECKED)))
    assert about_now(unknown.progress) == (None, None, None, "")


def test_what_was_told_at_the_end_of_a_job_stands() -> None:
    before = compute(a_status_input(reading=TOLD))
    done = compute(a_status_input(before, TOLD, decision=COMPLETE))
    finished = compute(a_status_input(done, Reading()))
    assert finished.completion_time is not None
    assert finished.progress == before.progress


def test_an_outage_is_one_write_as_it_begins_and_one_as_it_ends() -> None:
    statuses = written(
        RLJOB,
        compute(a_status_input(reading=TOLD)),
        [TOLD, *outage(20), *[TOLD] * 10],
        lambda before, reading: compute(a_status_input(before, reading)),
        is_urgent_for_job,
    )
    assert [status["progress"].get("backlog") for status in statuses] == [None, 7]
