"""Verdicts on a job's inputs by what its reader answers, and does not answer."""

from __future__ import annotations

import threading
from typing import Any, cast

from rl_contracts.reader import CheckAnswer, CheckRequest
from rl_contracts.spec.algorithm.algorithm import TEACHER_FIELD
from rl_operator.kube.kinds import Key
from rl_operator.stores.preflight import LATE_TIMES, Preflight, Verdict
from rl_operator.stores.reader_pods import (
    NOT_ANSWERING,
    NOT_RUNNING,
    ReaderDownError,
    ReaderLateError,
)
from rl_operator.stores.readers import Readers
from tests.unit.rl_operator.builders import a_spec
from tests.waiting import HUNG_SECONDS

JOB = Key("RLJob", "ns", "job")


class ScriptedReaders:
    """Answers each request with the next outcome."""

    def __init__(self, outcomes: list[ReaderDownError | CheckAnswer]) -> None:
        self.outcomes = outcomes
        self.requests: list[CheckRequest] = []

    def ask(self, _: Any, __: str, request: CheckRequest, *___: Any) -> CheckAnswer:
        self.requests.append(request)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, ReaderDownError):
            raise outcome
        return outcome

    def version(self, _: Any) -> str:
        return ""

    def note_version(self, *_: Any, **__: Any) -> None:
        return


def verdicts(*outcomes: ReaderDownError | CheckAnswer) -> list[Verdict]:
    """The verdict after each answer."""
    answered = threading.Semaphore(0)
    now = [0.0]
    preflight = Preflight(
        cast(Readers, ScriptedReaders(list(outcomes))),
        clock=lambda: now[0],
        enqueue=lambda _: answered.release(),
    )
    spec, result = a_spec(), []
    preflight.verdict(JOB, spec)
    for number in range(len(outcomes)):
        assert answered.acquire(timeout=HUNG_SECONDS)
        result.append(preflight.verdict(JOB, spec))
        now[0] += 60.0
        if number + 1 < len(outcomes):
            preflight.verdict(JOB, spec)  # starts the next check
    preflight.close()
    return result


def test_a_job_whose_trainer_has_been_started_is_checked_as_begun() -> None:
    """Its refusals would be for ever: ``data`` cannot be edited any more."""
    answered = threading.Semaphore(0)
    readers = ScriptedReaders([CheckAnswer(version="1", done=True)] * 2)
    preflight = Preflight(
        cast(Readers, readers), clock=lambda: 0.0, enqueue=lambda _: answered.release()
    )
    for begun in (False, True):
        preflight.verdict(JOB, a_spec(), begun=begun)
        assert answered.acquire(timeout=HUNG_SECONDS)
        assert preflight.verdict(JOB, a_spec(), begun=begun).passed
    preflight.close()
    assert [request.begun for request in readers.requests] == [False, True]


def test_another_teacher_is_read_again_and_its_sizes_alone_are_taken() -> None:
    answered = threading.Semaphore(0)
    sizes = {"hidden_size": 64}
    answer = CheckAnswer(
        version="1", done=True, others={TEACHER_FIELD: {**sizes, "x": "y"}, "another": sizes}
    )
    readers = ScriptedReaders([answer] * 2)
    preflight = Preflight(
        cast(Readers, readers), clock=lambda: 0.0, enqueue=lambda _: answered.release()
    )
    for teacher in ("s3://models/a", "s3://models/b"):
        spec = a_spec(algorithm={"objective": "Distillation", "teacher": teacher})
        preflight.verdict(JOB, spec)
        assert answered.acquire(timeout=HUNG_SECONDS)
        assert preflight.verdict(JOB, spec).others == {TEACHER_FIELD: sizes}
    preflight.close()
    assert len(readers.requests) == 2


def late() -> ReaderLateError:
    return ReaderLateError("Pod reader: no answer within 8 s.")


def test_a_job_is_refused_when_its_reader_is_late_again_and_again() -> None:
    *first, last = verdicts(*(late() for _ in range(LATE_TIMES)))
    assert [verdict.refusals for verdict in first] == [()] * (LATE_TIMES - 1)
    (refusal,) = last.refusals
    assert refusal.reason == NOT_ANSWERING
    assert "runs and does not answer: Pod reader: no answer within 8 s" in refusal.message


def test_a_late_answer_counts_only_in_a_row() -> None:
    passed = CheckAnswer(version="", done=False)
    results = verdicts(late(), late(), passed, late(), late(), CheckAnswer(version="", done=True))
    assert [verdict.refusals for verdict in results] == [()] * 6
    assert results[-1].passed


def test_a_job_is_refused_at_once_when_its_reader_cannot_run() -> None:
    (verdict,) = verdicts(ReaderDownError(NOT_RUNNING, "exceeded quota"))
    assert [refusal.reason for refusal in verdict.refusals] == [NOT_RUNNING]
