from __future__ import annotations

import pytest

from rl_contracts.documents.dataset import Example, parse_jsonl
from rl_contracts.errors import RefusedError
from rl_contracts.spec.sections import Columns, DatasetSource

SOURCE = DatasetSource(name="d", uri="s3://data/train.jsonl")
GOOD = b'{"id": "a", "query": "1+1=", "answer": "2"}'


def parse(*lines: bytes, source: DatasetSource = SOURCE) -> list[Example]:
    return list(parse_jsonl(lines, source=source, field="spec.data.train[0]"))


def test_records_are_parsed_and_empty_lines_skipped() -> None:
    parsed = parse(GOOD, b"\n", b'{"id": 7, "query": "x", "answer": 3.5, "more": [1]}')
    assert parsed == [
        Example(id="a", query="1+1=", answer="2"),
        Example(id="7", query="x", answer="3.5"),
    ]


def test_columns_rename_fields() -> None:
    source = SOURCE.model_copy(update={"columns": Columns(id="i", query="q", answer="a")})
    line = b'{"i": "1", "q": "x", "a": "y"}'
    assert parse(line, source=source) == [Example(id="1", query="x", answer="y")]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([GOOD, b'{"id": "b", '], "line 2 is not JSON"),
        ([b"[1]"], "line 1 is not a JSON object"),
        ([b'{"id": "a", "answer": "2"}'], "line 1: field 'query' is missing"),
        ([b'{"id": "a", "query": "", "answer": "2"}'], "field 'query' is \"\""),
        ([b'{"id": "a", "query": ["x"], "answer": "2"}'], "field 'query' is"),
        ([b'{"id": true, "query": "x", "answer": "2"}'], "field 'id' is true"),
        ([GOOD, GOOD], "line 2: id a occurs twice"),
        ([b"\xff\xfe"], "line 1 is not JSON"),
        ([], "holds no record"),
    ],
)
def test_malformed_records_are_refused_with_file_line_and_field(
    lines: list[bytes], message: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        parse(*lines)
    refusal = refused.value.refusal
    assert message in refusal.message
    assert refusal.message.startswith("s3://data/train.jsonl")
    assert (refusal.field, refusal.reason) == ("spec.data.train[0].uri", "DatasetMalformed")
