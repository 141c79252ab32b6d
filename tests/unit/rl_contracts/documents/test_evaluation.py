from __future__ import annotations

from collections.abc import Sequence

import pytest

from rl_contracts.documents.evaluation import EvaluationResult, labels
from tests.samples.documents import a_result, results_of_one_name


@pytest.mark.parametrize(
    ("results", "named"),
    [
        ([a_result(0), a_result(5)], ["test (temperature 1)"]),
        (
            [a_result(0, dataset="a"), a_result(0, dataset="b", temperature=0.25)],
            ["a (temperature 1)", "b (temperature 0.25)"],
        ),
        (
            results_of_one_name(3),
            [
                "gsm8k (validation, temperature 0)",
                "gsm8k (validation, temperature 1)",
                "gsm8k (test, temperature 0)",
                "gsm8k (test, temperature 1)",
            ],
        ),
        (
            [a_result(0, dataset="", split="validation"), a_result(0, dataset="", split="test")],
            ["validation (temperature 1)", "test (temperature 1)"],
        ),
    ],
    ids=["one source", "two sources", "one name in two splits", "without names"],
)
def test_labels_tell_series_apart(results: Sequence[EvaluationResult], named: list[str]) -> None:
    assert list(labels(results).values()) == named
    assert set(labels(results)) == {each.series for each in results}
