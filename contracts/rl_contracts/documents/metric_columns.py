"""Step metrics by column: a viewer reads the few columns that it draws, not every step's JSON.

A file is ``MAGIC``, the header's length as little-endian uint32, the header as JSON, and the
columns one after the other, each of ``rows`` packed little-endian items. A column whose items are
all equal has no items: the header holds the value. Row i is the i-th step of
``metrics.jsonl``. A number that a step does not have is NaN.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, ValidationError

from rl_contracts.documents.base import Record
from rl_contracts.documents.step_metrics import StepMetrics
from rl_contracts.errors import IntegrityError

MAGIC = b"RLM1"
START_BYTES = len(MAGIC) + 4
MOST_HEADER_BYTES = 1 << 20
MOST_COLUMNS = 256
"""A scorer's name is a column's name: a run may have many."""
ITEM_BYTES: Mapping[str, int] = {"f": 4, "d": 8, "q": 8}
EXACT: Mapping[str, Literal["d", "q"]] = {"step": "q", "epoch": "q", "time": "d"}
"""Columns that float32 would round too much."""
NESTED = ("reward_parts", "staleness", "seconds", "experts")


class Column(Record):
    """A column of the file."""

    name: str
    """Field of ``StepMetrics``; of its dictionaries ``field.key``, e.g. ``reward_parts.exact``."""
    kind: Literal["f", "d", "q"] = "f"
    """float32, float64 or int64."""
    constant: float | None = None
    """Value of every item; None: the items follow the header."""


class ColumnsHeader(Record):
    """What a file of columns holds, and where."""

    rows: int = Field(ge=0, le=1 << 31)
    first: int = 0
    """Step of the first row."""
    last: int = 0
    """Step of the last row."""
    columns: list[Column]

    @property
    def contiguous(self) -> bool:
        """Whether row i is step ``first + i``."""
        return self.last - self.first + 1 == self.rows

    def place(self, name: str, *, header_bytes: int) -> tuple[int, int]:
        """Offset and size in bytes of a column; KeyError where the file lacks it.

        Args:
            name: of the column.
            header_bytes: of the header alone.
        """
        offset = START_BYTES + header_bytes
        for column in self.columns:
            size = self.size_bytes(column)
            if column.name == name:
                return offset, size
            offset += size
        raise KeyError(name)

    def size_bytes(self, column: Column) -> int:
        """Bytes of a column's items."""
        return 0 if column.constant is not None else ITEM_BYTES[column.kind] * self.rows

    def items(self, column: Column, packed: bytes) -> array[Any]:
        """A column's items, from its bytes."""
        if column.constant is None:
            return unpack(column.kind, packed)
        value = int(column.constant) if column.kind == "q" else column.constant
        return array(column.kind, [value]) * self.rows


def encode(metrics: Sequence[StepMetrics]) -> bytes:
    """The file of some steps, in their order."""
    rows = [dict(flat(each)) for each in metrics]
    names = {name: None for row in rows for name in row}
    kept = sorted(names, key=lambda name: (name.count("."), name))[:MOST_COLUMNS]
    columns, items = [], []
    for name in kept:
        kind = EXACT.get(name, "f")
        missing: float = 0 if kind == "q" else float("nan")
        values: array[Any] = array(kind, (row.get(name, missing) for row in rows))
        same = len(rows) > 1 and values.count(values[0]) == len(values)
        columns.append(Column(name=name, kind=kind, constant=values[0] if same else None))
        items.append(b"" if same else _swapped(values).tobytes())
    steps = [each.step for each in metrics] or [0]
    header = ColumnsHeader(rows=len(rows), first=steps[0], last=steps[-1], columns=columns)
    text = header.model_dump_json().encode()
    return b"".join([MAGIC, struct.pack("<I", len(text)), text, *items])


def header_bytes(start: bytes) -> int:
    """Length of the header, from the first bytes of a file; IntegrityError for another file."""
    if len(start) < START_BYTES or start[: len(MAGIC)] != MAGIC:
        raise IntegrityError("not a file of metric columns")
    size = int(struct.unpack("<I", start[len(MAGIC) : START_BYTES])[0])
    if size > MOST_HEADER_BYTES:
        raise IntegrityError(f"the header of metric columns has {size} bytes")
    return size


def parse_header(text: bytes) -> ColumnsHeader:
    """The header; IntegrityError where it is none."""
    try:
        return ColumnsHeader.model_validate_json(text)
    except ValidationError as error:
        raise IntegrityError(f"not a header of metric columns: {error.error_count()}") from error


def unpack(kind: str, packed: bytes) -> array[Any]:
    """A column's items."""
    values: array[Any] = array(kind)
    values.frombytes(packed)
    return _swapped(values)


def flat(metrics: StepMetrics) -> Iterator[tuple[str, float]]:
    """Names of columns and numbers of a step; what is None is left out."""
    for name, value in metrics:
        if name in NESTED:
            for key, number in value.items():
                yield f"{name}.{key}", number
        elif isinstance(value, bool | int | float):
            yield name, value
    for cause, number in metrics.drops.by_cause.items():
        yield f"dropped.{cause}", number


def _swapped(values: array[Any]) -> array[Any]:
    if sys.byteorder == "big":
        values.byteswap()
    return values
