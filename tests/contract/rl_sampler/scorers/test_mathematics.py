"""The process that compares mathematical answers, with the real math-verify."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from rl_sampler.scorers.mathematics import MathChecker
from rl_sampler.scorers.response import ScoringError


@pytest.fixture(scope="module")
def checker() -> Iterator[MathChecker]:
    found = MathChecker(processor_seconds=60.0)  # a right answer, on any machine
    yield found
    found.close()


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
        ("42", "42 " * 1000, False),
    ],
)
def test_math_answers_are_compared_by_value(
    checker: MathChecker, reference: str, answer: str, same: bool
) -> None:
    assert checker.same(reference, answer) is same


def test_math_answer_that_takes_too_long_is_wrong_and_the_next_is_scored(
    checker: MathChecker,
) -> None:
    with contextlib.closing(MathChecker(processor_seconds=1.0)) as hasty:
        assert hasty.same("1", "9^{9^{9^{9}}} - 9^{9^{9^{9}}} + 1") is False
        hasty._processor_seconds = 60.0
        assert hasty.same("42", "42") is True


def test_killed_math_worker_raises_a_scoring_error(checker: MathChecker) -> None:
    assert checker.same("42", "42") is True
    process = checker._process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(ScoringError, match="ended with -9"):
        checker.same("42", "42")
    assert checker.same("42", "42") is True


def test_math_worker_has_no_secret_in_its_environment(
    checker: MathChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    checker.close()
    assert checker.same("42", "42") is True
    process = checker._process
    assert process is not None
    with open(f"/proc/{process.pid}/environ", "rb") as environment:
        assert b"hush" not in environment.read()
