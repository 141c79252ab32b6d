from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rl_contracts.documents.datasets.raw import UnreadableError
from rl_contracts.documents.datasets.records import BadRecordError, parse_record
from rl_contracts.spec.data import Columns
from rl_trainer.data.parquet import read_parquet

COLUMNS = Columns(query="question")


def written(path: Path, rows: list[dict[str, Any]], **options: Any) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path, **options)
    return path


def test_rows_are_read_over_all_row_groups_without_other_columns(tmp_path: Path) -> None:
    rows = [{"question": f"q{n}", "answer": n, "more": b"x"} for n in range(7)]
    path = written(tmp_path / "a.parquet", rows, row_group_size=3)
    read_rows = list(read_parquet(path, columns=COLUMNS))
    assert [row.place for row in read_rows] == [f"row {n}" for n in range(1, 8)]
    assert read_rows[6].value == {"question": "q6", "answer": 6}


def test_conversations_are_read(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "name": None}]
    path = written(tmp_path / "a.parquet", [{"messages": turns}])
    columns = Columns(messages="messages")
    (raw,) = read_parquet(path, columns=columns)
    example = parse_record(raw.value, columns=columns, place=raw.place)
    assert ([message.text for message in example.messages], example.answer) == (["a"], "b")


def test_one_batch_is_held_at_a_time(tmp_path: Path) -> None:
    rows = [{"question": "x" * 1000, "answer": f"{n}"} for n in range(20_000)]
    path = written(tmp_path / "a.parquet", rows, row_group_size=1000, use_dictionary=False)
    del rows
    before = pa.total_allocated_bytes()
    largest = 0
    for _ in read_parquet(path, columns=COLUMNS):
        largest = max(largest, pa.total_allocated_bytes() - before)
    assert largest < 4_000_000  # of 20 MB


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"value": "2"}, "field 'answer' is an object, not a text"),
        (b"2", "field 'answer' is a bytes, not a text"),
        (None, "field 'answer' is missing"),
        (float("nan"), "field 'answer' is not a finite number"),
        (float("-inf"), "field 'answer' is not a finite number"),
    ],
)
def test_columns_of_another_type_are_refused(tmp_path: Path, value: Any, message: str) -> None:
    path = written(tmp_path / "a.parquet", [{"question": "q", "answer": value}])
    (raw,) = read_parquet(path, columns=COLUMNS)
    with pytest.raises(BadRecordError) as bad:
        parse_record(raw.value, columns=COLUMNS, place=raw.place)
    assert message in str(bad.value)


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
@pytest.mark.parametrize(
    ("wrap", "expected"),
    [
        (lambda kind: kind, 0.1),
        (lambda kind: pa.list_(kind), [0.1, None]),
        (lambda kind: pa.list_(kind, 2), [0.1, 2.5]),
        (lambda kind: pa.struct([("a", pa.list_(kind)), ("b", kind)]), {"a": [0.1], "b": None}),
        (lambda kind: pa.map_(pa.string(), kind), [("a", 0.1)]),
    ],
    ids=["plain", "list", "fixed list", "struct", "map"],
)
def test_numbers_are_as_short_as_they_were_written(
    tmp_path: Path, kind: pa.DataType, wrap: Callable[[pa.DataType], pa.DataType], expected: Any
) -> None:
    answers = pa.array([expected, None], wrap(kind))
    pq.write_table(pa.table({"question": ["a", "b"], "answer": answers}), tmp_path / "a.parquet")
    rows = [record.value for record in read_parquet(tmp_path / "a.parquet", columns=COLUMNS)]
    assert rows == [{"question": "a", "answer": expected}, {"question": "b", "answer": None}]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([10**7, 1], pa.int32()).cast(pa.date32()),
        pa.array([2**62, 1], pa.int64()).cast(pa.duration("s")),
    ],
    ids=["date", "duration"],
)
def test_a_date_that_python_cannot_hold_is_one_bad_record(tmp_path: Path, values: pa.Array) -> None:
    table = pa.table({"question": ["a", "b"], "answer": ["1", "2"], "on": values})
    pq.write_table(table, tmp_path / "a.parquet")
    columns = Columns(query="question", fields=["on"])
    first, second = read_parquet(tmp_path / "a.parquet", columns=columns)
    assert first.problem.startswith("field 'on': ")
    assert second.problem == ""


def test_invalid_utf8_is_one_bad_record(tmp_path: Path) -> None:
    texts = pa.Array.from_buffers(
        pa.string(),
        2,
        [None, pa.py_buffer(bytes([0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0])), pa.py_buffer(b"a\xff")],
    )
    pq.write_table(pa.table({"question": texts, "answer": ["1", "2"]}), tmp_path / "a.parquet")
    first, second = read_parquet(tmp_path / "a.parquet", columns=COLUMNS)
    assert (first.problem, second.place) == ("", "row 2")
    assert "field 'question': 'utf-8' codec" in second.problem


def test_files_that_are_not_parquet_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", [{"question": "q" * 5000, "other": 1}] * 50)
    with pytest.raises(UnreadableError, match="has no column 'answer'; it has question, other"):
        list(read_parquet(path, columns=COLUMNS))
    for name, data in (("empty", b""), ("text", b"{}"), ("cut", path.read_bytes()[:-20])):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UnreadableError, match="is no Parquet file"):
            list(read_parquet(tmp_path / name, columns=COLUMNS))


def test_a_file_whose_records_are_judged_alone_needs_no_answers(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", [{"question": "q", "unit": "m", "other": 1}])
    columns = Columns(query="question", fields=["unit"])
    (raw,) = read_parquet(path, columns=columns, compares=lambda _: False)
    assert raw.value == {"question": "q", "unit": "m"}
    assert raw.columns == ["question", "unit", "other"]


def test_a_damaged_page_names_the_last_good_row(tmp_path: Path) -> None:
    rows = [{"question": f"question {n}", "answer": f"{n}"} for n in range(300)]
    path = written(tmp_path / "a.parquet", rows, compression="zstd", use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[60:400] = b"\xff" * 340
    path.write_bytes(data)
    with pytest.raises(UnreadableError, match=r"after row \d+: "):
        list(read_parquet(path, columns=COLUMNS))
