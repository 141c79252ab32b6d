from __future__ import annotations

import json
from typing import Any

import pytest

from rl_contracts.documents.datasets import reading
from rl_contracts.documents.datasets.example import Example
from rl_contracts.documents.datasets.raw import RawRecord
from rl_contracts.documents.datasets.reading import SourceReader
from rl_contracts.documents.datasets.text import read_text
from rl_contracts.errors import RefusedError
from rl_contracts.spec.data import DatasetSource

SOURCE = DatasetSource(name="d", uri="s3://data/train.jsonl")
GOOD = b'{"id": "a", "query": "1+1=", "answer": "2"}\n'
BAD = b'{"id": "b", "query": "1+1="}\n'


def reader(*, skip: bool = False) -> SourceReader:
    return SourceReader(SOURCE, field="spec.data.train[0]", skip=skip)


def read(source: SourceReader, *lines: bytes) -> list[Example]:
    examples = list(source.read(read_text([b"".join(lines)]), file=SOURCE.uri))
    source.check_any()
    return examples


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([GOOD, b"{nonsense\n"], "line 2 is not JSON"),
        ([b"\n", BAD], "line 2: field 'answer' is missing"),
        ([GOOD, GOOD], "line 2: id 'a' occurs twice; field 'id' is read as the id: name another"),
        ([b"[1]"], "line 1 is not a JSON object"),
        ([b"[{]"], "line 1 is not JSON"),
        ([], "holds no record"),
    ],
)
def test_a_bad_record_is_refused_by_file_place_and_field(lines: list[bytes], message: str) -> None:
    with pytest.raises(RefusedError) as refused:
        read(reader(), *lines)
    refusal = refused.value.refusal
    assert message in refusal.message
    assert refusal.message.startswith("s3://data/train.jsonl")
    assert (refusal.field, refusal.reason) == ("spec.data.train[0].uri", "DatasetMalformed")
    assert "onBadRecord to Skip" in refusal.remedy


@pytest.mark.parametrize("skip", [False, True])
def test_an_array_on_one_line_is_read_whole(skip: bool) -> None:
    rows = [{"query": f"{n}+1=", "answer": "2"} for n in range(5)]
    source = reader(skip=skip)
    examples = read(source, json.dumps(rows).encode())
    assert [example.messages[0].text for example in examples] == [row["query"] for row in rows]
    assert [example.id for example in examples[:2]] == ["line 1", "line 1, record 2"]
    assert source.skipped == 0


def test_bad_records_are_skipped_and_counted() -> None:
    source = reader(skip=True)
    assert [example.id for example in read(source, BAD, GOOD, b"[1]\n", GOOD, BAD, BAD)] == ["a"]
    assert (source.records, source.skipped, len(source.first_skipped)) == (1, 5, 3)
    assert source.first_skipped[0].startswith("s3://data/train.jsonl line 1: field 'answer'")
    assert source.first_skipped[2].startswith("s3://data/train.jsonl line 4: id 'a' occurs twice")


def test_a_source_with_only_bad_records_is_refused_even_when_skipping() -> None:
    with pytest.raises(RefusedError, match=r"no usable record; 2 are bad, the first: .* line 1"):
        read(reader(skip=True), BAD, BAD)


@pytest.mark.parametrize(
    ("columns", "field"),
    [
        ({"answer": "solution"}, "answer"),
        ({"scorer": "judge"}, "scorer"),
        ({"answerSchema": "form"}, "answerSchema"),
        ({"fields": ["answer", "level"]}, "fields[1]"),
    ],
)
def test_a_named_column_that_no_record_has_is_refused(columns: dict[str, Any], field: str) -> None:
    source = DatasetSource.model_validate({**SOURCE.model_dump(), "columns": columns})
    at = "spec.data.train[0]"
    source_reader = SourceReader(source, field=at, compares=lambda scorer: False)
    with pytest.raises(RefusedError, match="the first has id, query, answer") as refused:
        read(source_reader, GOOD, BAD)
    assert refused.value.refusal.field == f"{at}.columns.{field}"
    assert refused.value.refusal.reason == "DatasetMalformed"
    begun = SourceReader(source, field=at, compares=lambda scorer: False)
    list(begun.read(read_text([GOOD]), file=SOURCE.uri))
    begun.check_any(whole=False)
    later = b'{"query": "x", "solution": 1, "judge": null, "form": "Boxed", "level": 3}'
    assert len(read(SourceReader(source, field=at, compares=lambda _: False), GOOD, later)) == 2


def test_a_run_that_has_begun_goes_on_with_what_earlier_releases_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reading, "MAX_TEXT_BYTES", 4)
    columns = {"scorer": "judge"}
    source = DatasetSource.model_validate({**SOURCE.model_dump(), "columns": columns})
    begun = SourceReader(source, field="spec.data.train[0]", begun=True, keep_long=True)
    assert len(read(begun, GOOD)) == 1
    assert "No record of s3://data/train.jsonl has a field 'judge'" in caplog.text
    assert "line 1 has 5 bytes of text as JSON, more than 4" in caplog.text


@pytest.mark.parametrize(("keep_long", "ids"), [(False, ["line 1"]), (True, ["line 1", "a"])])
def test_a_record_that_is_too_long_is_counted_whether_it_is_skipped_or_kept(
    monkeypatch: pytest.MonkeyPatch, keep_long: bool, ids: list[str]
) -> None:
    monkeypatch.setattr(reading, "MAX_TEXT_BYTES", 4)
    source_reader = SourceReader(SOURCE, field="spec.data.train[0]", skip=True, keep_long=keep_long)
    short = b'{"query": "x", "answer": "1"}\n'
    assert [example.id for example in read(source_reader, short, GOOD)] == ids
    assert source_reader.too_long == 1


@pytest.mark.parametrize(
    ("field", "text", "fits"),
    [
        ("answer", "x" * 96, True),
        ("answer", "x" * 97, False),
        ("query", "é" * 50, False),
        ("query", "\n" * 50, False),
    ],
    ids=["fits", "answer", "query", "escaped"],
)
def test_a_record_that_no_task_could_hold_is_bad(
    monkeypatch: pytest.MonkeyPatch, field: str, text: str, fits: bool
) -> None:
    """Of any format: rows of Parquet have no limit of their own."""
    monkeypatch.setattr(reading, "MAX_TEXT_BYTES", 100)
    record = RawRecord(place="row 1", value={"query": "1+1=", "answer": "2", field: text})
    examples = reader().read([record], file=SOURCE.uri)
    if fits:
        assert len(list(examples)) == 1
        return
    with pytest.raises(RefusedError, match=r"row 1 has 101 bytes of text as JSON, more than 100"):
        list(examples)


def test_a_broken_array_is_refused_although_bad_records_are_skipped() -> None:
    with pytest.raises(RefusedError, match="the file ends within the array") as refused:
        read(reader(skip=True), b"[", GOOD)
    assert "Skip" not in refused.value.refusal.remedy


def test_an_id_is_unique_over_all_files_of_a_source() -> None:
    source = reader()
    read(source, GOOD)
    with pytest.raises(RefusedError, match="id 'a' occurs twice"):
        read(source, GOOD)


def test_a_named_id_that_occurs_twice_is_refused_without_advice_to_name_it() -> None:
    source = DatasetSource.model_validate({**SOURCE.model_dump(), "columns": {"id": "id"}})
    with pytest.raises(RefusedError, match=r"id 'a' occurs twice\.") as refused:
        read(SourceReader(source, field="spec.data.train[0]"), GOOD, GOOD)
    assert "columns.id" not in refused.value.refusal.message
