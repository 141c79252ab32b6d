"""The process that compares mathematical answers, with the real math-verify."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_sampler.code.math_checker import CompareError, MathChecker
from rl_sampler.scorers.mathematics import MathScorer
from rl_sampler.scorers.response import Response, ScoringError
from tests.code_container import in_thread
from tests.samples.manifests import a_job

SECONDS = 60.0  # for a right answer, on any machine


@pytest.fixture(scope="module")
def checker() -> Iterator[MathChecker]:
    math_checker = MathChecker()
    yield math_checker
    math_checker.close()


@pytest.mark.parametrize(
    ("reference", "answer", "same"),
    [
        ("42", "42", True),
        ("42", " 42.0 ", True),
        ("0.5", r"\frac{1}{2}", True),
        ("1/2", r"$\frac{1}{2}$", True),
        ("x^2+2x+1", "(x+1)^2", True),
        (r"\{1,2\}", r"\{2,1\}", True),
        ("1,000", "1000", True),
        ("3", "x = 3", True),
        ("42", "43", False),
        ("42", "forty-two", False),
        ("42", "", False),
        ("42", "\\", False),
    ],
)
def test_math_answers_are_compared_by_value(
    checker: MathChecker, reference: str, answer: str, same: bool
) -> None:
    assert checker.same(reference, answer, seconds=SECONDS) is same


@pytest.mark.soak
def test_math_answer_that_takes_too_long_is_wrong_and_the_next_is_scored(
    checker: MathChecker,
) -> None:
    with contextlib.closing(MathChecker()) as hasty:
        assert hasty.same("1", "9^{9^{9^{9}}} - 9^{9^{9^{9}}} + 1", seconds=1.0) is False
        assert hasty.same("42", "42", seconds=SECONDS) is True


def test_math_worker_killed_during_a_comparison_raises_a_scoring_error(
    checker: MathChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = running_worker(checker)
    os.kill(worker.pid, signal.SIGSTOP)
    read_line = checker._line

    def killed_after_the_question(worker: subprocess.Popen[str], *, seconds: float) -> str | None:
        worker.kill()
        return read_line(worker, seconds=seconds)

    with monkeypatch.context() as patch:
        patch.setattr(checker, "_line", killed_after_the_question)
        with pytest.raises(CompareError, match="ended with -9"):
            checker.same("42", "42", seconds=SECONDS)
    assert checker.same("42", "42", seconds=SECONDS) is True


def test_math_worker_killed_between_comparisons_is_replaced_and_its_pipes_are_closed(
    checker: MathChecker,
) -> None:
    worker = running_worker(checker)
    worker.kill()
    worker.wait()
    assert checker.same("42", "42", seconds=SECONDS) is True
    assert [pipe.closed for pipe in (worker.stdin, worker.stdout) if pipe] == [True, True]


def test_math_worker_has_no_secret_in_its_environment(
    checker: MathChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    checker.close()
    worker = running_worker(checker)
    with open(f"/proc/{worker.pid}/environ", "rb") as environment:
        assert b"hush" not in environment.read()


async def test_math_scorer_compares_in_the_container_code(tmp_path: Path) -> None:
    with in_thread(tmp_path, a_job()["spec"]) as code:
        scorer = MathScorer(code, seconds=SECONDS)
        answers = {"0.5": 1.0, r"\frac12": 1.0, "1/3": 0.0, " ": 0.0, "0.5 " * 1000: 0.0}
        for answer, value in answers.items():
            assert await scorer(Response(text="", answer=answer, reference="0.5")) == value
        assert await scorer(Response(text="", answer=None, reference="0.5")) == 0.0
    with pytest.raises(ScoringError, match="does not listen"):
        await scorer(Response(text="", answer="1/2", reference="0.5"))


def running_worker(checker: MathChecker) -> subprocess.Popen[str]:
    """The checker's process, started by a comparison."""
    assert checker.same("42", "42", seconds=SECONDS) is True
    worker = checker._process
    assert worker is not None
    return worker
