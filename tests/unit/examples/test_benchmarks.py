"""The benchmark example reads records in the forms that the benchmarks are published in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rl_contracts.documents.datasets.records import parse_record
from rl_contracts.spec.resources import RLJobSpec
from rl_operator.validation.refusals import of_spec

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "benchmarks.yaml"
SPEC = RLJobSpec.model_validate(yaml.safe_load(EXAMPLE.read_text())["spec"])
RECORDS: dict[str, tuple[dict[str, Any], str]] = {
    "aime24": ({"id": 60, "problem": "P", "solution": "S", "answer": "204"}, "204"),
    "aime25": ({"id": "0", "problem": "P", "answer": "70"}, "70"),
    "math500": (
        {"problem": "P", "solution": "S", "answer": r"\frac{14}{3}", "subject": "A", "level": 3},
        r"\frac{14}{3}",
    ),
    "amc23": ({"id": 0, "question": "P", "answer": 27.0, "url": "https://a.example"}, "27.0"),
    "minerva": ({"question": "P", "answer": "1.6"}, "1.6"),
    "olympiadbench": (
        {"id": 1606, "question": "P", "solution": ["S"], "final_answer": ["2"], "unit": None},
        "2",
    ),
    "gsm8k": ({"question": "P", "answer": "16 - 3 = 13\n#### 13"}, "16 - 3 = 13\n#### 13"),
}


def test_the_operator_refuses_nothing_of_the_example() -> None:
    assert list(of_spec(SPEC)) == []


def test_each_benchmark_has_a_record() -> None:
    assert [source.name for source in SPEC.data.validation] == list(RECORDS)


@pytest.mark.parametrize("source", SPEC.data.validation, ids=lambda source: source.name)
def test_a_record_of_the_published_form_is_read(source: Any) -> None:
    record, answer = RECORDS[source.name]
    example = parse_record(record, columns=source.columns, place="line 1")
    assert example.messages[-1].text == "P"
    assert example.answer == answer


def test_several_answers_are_all_asked_for() -> None:
    (source,) = [source for source in SPEC.data.validation if source.name == "olympiadbench"]
    record = {"question": "P", "final_answer": ["2", "-1"]}
    assert parse_record(record, columns=source.columns, place="line 1").answer == "2, -1"
