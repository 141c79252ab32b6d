from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_contracts.documents.datasets import text
from rl_contracts.documents.datasets.raw import RawRecord, UnreadableError
from rl_contracts.documents.datasets.text import read_text
from tests.examples import examples

OBJECTS = st.lists(
    st.dictionaries(st.text(max_size=4), st.text(max_size=9) | st.integers(), max_size=3)
)
SIZES = st.integers(1, 40)


def cut(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def values(data: bytes, size: int = 7) -> list[Any]:
    records = list(read_text(cut(data, size)))
    assert not any(record.problem for record in records)
    return [record.value for record in records]


def places(data: bytes, size: int = 7) -> list[tuple[str, Any]]:
    return [(record.place, record.value) for record in read_text(cut(data, size))]


@settings(max_examples=examples(50), deadline=None)
@given(OBJECTS, SIZES, st.sampled_from([None, 1]))
def test_an_array_is_read_whatever_its_chunks(
    objects: list[dict[str, Any]], size: int, indent: int | None
) -> None:
    for ascii_only in (True, False):
        encoded = json.dumps(objects, indent=indent, ensure_ascii=ascii_only)
        assert values(encoded.encode("utf-8", "surrogatepass"), size) == objects


@settings(max_examples=examples(50), deadline=None)
@given(OBJECTS, SIZES, st.sampled_from([b"\n", b"\r\n", b"\n\n"]))
def test_lines_are_read_whatever_their_chunks(
    objects: list[dict[str, Any]], size: int, end: bytes
) -> None:
    data = b"".join(json.dumps(value).encode() + end for value in objects)
    assert values(data, size) == objects
    assert values(data.removesuffix(end), size) == objects


def test_records_are_placed_by_line() -> None:
    assert places(b'{"a": 1}\n\n{"a": 2}') == [("line 1", {"a": 1}), ("line 3", {"a": 2})]
    array = b'\xef\xbb\xbf\n[\n {"a":\n 1},\n {"a": 2}\n]\n'
    assert places(array) == [("line 3", {"a": 1}), ("line 5", {"a": 2})]


@pytest.mark.parametrize(
    ("array", "where"),
    [
        (b"\xef\xbb\xbf[1, 23]", ["line 1", "line 1, record 2"]),
        (b"[{}, {}, {}]", ["line 1", "line 1, record 2", "line 1, record 3"]),
        (b"[{},\n{}, {},\n{}]", ["line 1", "line 2", "line 2, record 2", "line 3"]),
        (b'[{"a":\n1}, {}, {}]', ["line 1", "line 2", "line 2, record 2"]),
    ],
)
@pytest.mark.parametrize("size", [1, 5, 4096])
def test_records_that_share_a_line_have_places_of_their_own(
    array: bytes, where: list[str], size: int
) -> None:
    assert [place for place, _ in places(array, size)] == where


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"id": "b", ', "is not JSON: "),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": "\xff"}', "is not UTF-8 at byte 8"),
        (b'\xff\xfe{\0"\0', "is not UTF-8 at byte 1"),
        (b'{"a": ' + b"[" * 100_000, "is nested too deeply"),
        (b'{"a": ' + b"1" * 5000 + b"}", "is not JSON: "),
    ],
)
def test_a_bad_line_is_one_record(line: bytes, problem: str) -> None:
    first, second, third = read_text(cut(b'{"a": 1}\n' + line + b'\n{"a": 3}\n', 11))
    assert (first.problem, second.place, third.value) == ("", "line 2", {"a": 3})
    assert problem in second.problem


def test_an_endless_line_is_not_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "MAX_RECORD_BYTES", 50)
    long = b'{"a": "' + b"x" * 5000 + b'"}'
    records = list(read_text(cut(b"{}\n" + long + b"\n{}", 20)))
    assert records[1] == RawRecord(place="line 2", problem="is longer than 50 bytes")
    assert [record.place for record in records] == ["line 1", "line 2", "line 3"]
    with pytest.raises(UnreadableError, match="line 1 is longer than 50 bytes"):
        list(read_text(cut(b"[" + long + b"]", 20)))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (b"[", "line 1: the file ends within the array"),
        (b'[\n{"a": 1}', "line 2: the file ends within the array"),
        (b'[{"a": 1},\n', "line 2: the file ends within the array"),
        (b'[{"a": 1}\n{"a": 2}]', "line 2: expected ']', got '{'"),
        (b'[{"a": 1},\n{"a": }]', "line 2 is not JSON"),
        (b'[{"a": 1},{"a": }]', "line 1, record 2 is not JSON"),
        (b'[{"a": 1}] {}', "line 1: unexpected text after the array"),
        (b'[{"a": "\xff"}]', "not UTF-8"),
        (b"[" * 100_000, "line 1 is nested too deeply"),
        (b'[{"a": Infinity}]', "Infinity is not a JSON number"),
    ],
)
def test_a_broken_array_says_where(array: bytes, message: str) -> None:
    with pytest.raises(UnreadableError, match=message.replace("[", r"\[")):
        list(read_text(cut(array, 4096)))


@pytest.mark.parametrize("empty", [b"", b"\n \n", b"[]", b" [ ]\n"])
def test_an_empty_file_has_no_records(empty: bytes) -> None:
    assert list(read_text(cut(empty, 2))) == []
