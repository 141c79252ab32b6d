"""Dataset records: parsed once, with errors that name file, line and field."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.spec.sections import DatasetSource

SHOWN_CHARACTERS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One record of a dataset."""

    id: str
    query: str
    answer: str


def parse_jsonl(lines: Iterable[bytes], *, source: DatasetSource, field: str) -> Iterator[Example]:
    """Parse the lines of a JSONL dataset, empty lines left out.

    Args:
        lines: raw lines, UTF-8.
        source: what the manifest says of the dataset.
        field: path of the source in the manifest, e.g. ``spec.data.train[0]``.

    Raises:
        RefusedError: at the first malformed record, an id that occurs twice, or when there is none.
    """
    seen: set[str] = set()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{source.uri} line {number}"
        example = _parse(line, source=source, field=field, where=where)
        if example.id in seen:
            raise _refused(source, field, f"{where}: id {_short(example.id)} occurs twice.")
        seen.add(example.id)
        yield example
    if not seen:
        raise _refused(source, field, f"{source.uri} holds no record.")


def _parse(line: bytes, *, source: DatasetSource, field: str, where: str) -> Example:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise _refused(source, field, f"{where} is not JSON: {error}.") from error
    if not isinstance(record, dict):
        raise _refused(source, field, f"{where} is not a JSON object.")
    columns = source.columns
    values = {}
    for name, column in (("id", columns.id), ("query", columns.query), ("answer", columns.answer)):
        value = record.get(column)
        if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
            found = "is missing" if value is None else f"is {_short(json.dumps(value))}"
            raise _refused(source, field, f"{where}: field {column!r} {found}, not a text.")
        values[name] = str(value)
    return Example(**values)


def _refused(source: DatasetSource, field: str, message: str) -> RefusedError:
    return RefusedError(
        Refusal(
            field=f"{field}.uri",
            value=source.uri,
            reason="DatasetMalformed",
            message=message,
            remedy="Mend the file in the bucket, or set columns to the names that it uses.",
        )
    )


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"
