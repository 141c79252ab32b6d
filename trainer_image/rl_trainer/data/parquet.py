"""Parquet files, read row group by row group: memory holds one batch of the wanted columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow.parquet import ParquetFile

from rl_contracts.documents.datasets.raw import RawRecord, UnreadableError
from rl_contracts.documents.datasets.records import Compares, columns_of
from rl_contracts.spec.data import Columns

ROWS_PER_BATCH = 256
ERRORS = (pa.ArrowException, OSError, ValueError, OverflowError)
"""What pyarrow raises of a file that is none, is damaged, or has a date that Python cannot hold."""
SHORT_FLOATS = {pa.float16(): np.float16, pa.float32(): np.float32}


def read_parquet(
    path: Path, *, columns: Columns, compares: Compares = lambda scorer: True
) -> Iterator[RawRecord]:
    """Records of a Parquet file, other columns left out; ``compares`` as for ``parse_record``.

    Raises:
        UnreadableError: it is none, is damaged, or lacks a column.
    """
    needed, others = columns_of(columns, compares=compares)
    try:
        file = ParquetFile(path, memory_map=True)
    except ERRORS as error:
        raise UnreadableError(f"is no Parquet file: {_first_line(error)}") from error
    with file:
        present = file.schema_arrow.names
        for name in needed:
            if name not in present:
                raise UnreadableError(f"has no column {name!r}; it has {', '.join(present)}"[:300])
        wanted = [name for name in [*needed, *others] if name in present]
        for record in _rows(file, wanted):
            yield replace(record, columns=present)


def _rows(file: ParquetFile, wanted: list[str]) -> Iterator[RawRecord]:
    row = 0
    for group in range(file.num_row_groups):
        batches = file.iter_batches(
            ROWS_PER_BATCH, row_groups=[group], columns=wanted, use_threads=False
        )
        while True:
            try:
                batch = next(batches, None)
            except ERRORS as error:
                raise UnreadableError(f"after row {row}: {_first_line(error)}") from error
            if batch is None:
                break
            for index in range(batch.num_rows):
                row += 1
                yield _record(batch, index, f"row {row}")


def _record(batch: pa.RecordBatch, index: int, place: str) -> RawRecord:
    value = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            value[name] = _shortest(column[index].as_py(), column.type)
        except ERRORS as error:
            return RawRecord(place=place, problem=f"field {name!r}: {_first_line(error)}")
    return RawRecord(place=place, value=value)


def _shortest(value: Any, kind: pa.DataType) -> Any:
    """The value with float16 and float32 as short as they were written: 0.1, not 0.10000000149."""
    if isinstance(kind, pa.BaseExtensionType):
        return _shortest(value, kind.storage_type)
    match value:
        case float():
            short = SHORT_FLOATS.get(kind)
            return value if short is None else float(str(short(value)))
        case dict():
            return {each.name: _shortest(value[each.name], each.type) for each in kind}
        case list() if pa.types.is_map(kind):
            return [
                (_shortest(key, kind.key_type), _shortest(item, kind.item_type))
                for key, item in value
            ]
        case list():
            return [_shortest(item, kind.value_type) for item in value]
        case _:
            return value


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
