"""Metrics of steps as rows, as a pandas DataFrame or as an Arrow table."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

from rl_console.errors import UsageError
from rl_contracts.queries.answers import MetricsAnswer
from rl_contracts.queries.kinds import MOST_COLUMNS


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsRow:
    """Metrics of one step, or the means of several steps in a row."""

    step: int
    """The last one of them."""
    time: float
    """When it was trained, by the store's clock: seconds since 1970."""
    values: Mapping[str, float | None]
    """By column; None where a step has none."""

    def __getitem__(self, column: str) -> float | None:
        """The value of a column."""
        return self.values[column]


class Metrics(Sequence[MetricsRow]):
    """Rows by step, the oldest first."""

    def __init__(self, answers: Iterable[MetricsAnswer]) -> None:
        """Put answers of consecutive ranges of steps together."""
        given = [each for each in answers if each.steps]
        self._steps = [step for each in given for step in each.steps]
        self._times = [time for each in given for time in each.times]
        names = dict.fromkeys(name for each in given for name in each.series)
        self._series: dict[str, list[float | None]] = {name: [] for name in names}
        for each in given:
            for name, values in self._series.items():
                series = each.series.get(name)
                values += series.mean if series else [None] * len(each.steps)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self._series)

    def __len__(self) -> int:
        return len(self._steps)

    @overload
    def __getitem__(self, index: int) -> MetricsRow: ...

    @overload
    def __getitem__(self, index: slice) -> list[MetricsRow]: ...

    def __getitem__(self, index: int | slice) -> MetricsRow | list[MetricsRow]:
        """The row at an index, or the rows of a slice."""
        if isinstance(index, slice):
            return [self._row(each) for each in range(len(self))[index]]
        return self._row(range(len(self))[index])

    def __iter__(self) -> Iterator[MetricsRow]:
        return (self._row(each) for each in range(len(self)))

    def __repr__(self) -> str:
        return f"Metrics({len(self)} rows of {', '.join(self.columns)})"

    def arrow(self) -> Any:
        """A ``pyarrow.Table`` with the columns ``step``, ``time`` and those of the metrics.

        Raises:
            UsageError: pyarrow is not installed.
        """
        pyarrow = _library("pyarrow", install="pip install 'rl-operator[arrow]'")
        times = pyarrow.array([round(each * 1e6) for each in self._times])
        series = {
            name: pyarrow.array(values, pyarrow.float64()) for name, values in self._series.items()
        }
        return pyarrow.table(
            {
                "step": pyarrow.array(self._steps, pyarrow.int64()),
                "time": times.cast(pyarrow.int64()).cast(pyarrow.timestamp("us", tz="UTC")),
                **series,
            }
        )

    def pandas(self) -> Any:
        """A ``pandas.DataFrame`` by step, with ``time`` and the columns of the metrics.

        Raises:
            UsageError: pandas is not installed.
        """
        pandas = _library("pandas", install="pip install pandas")
        values = {name: pandas.Series(each, dtype=float) for name, each in self._series.items()}
        times = pandas.to_datetime(pandas.Series(self._times, dtype=float), unit="s", utc=True)
        index = pandas.Index(self._steps, name="step", dtype="int64")
        return pandas.DataFrame({"time": times, **values}).set_index(index)

    def _row(self, index: int) -> MetricsRow:
        return MetricsRow(
            step=self._steps[index],
            time=self._times[index],
            values={name: values[index] for name, values in self._series.items()},
        )


def chosen(columns: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """The columns to ask for.

    Args:
        columns: wanted names, or prefixes that end with a dot; empty: the first MOST_COLUMNS.
        names: of the run's columns.

    Raises:
        UsageError: the run has no such column, or too many are wanted.
    """
    missing = [
        each
        for each in columns
        if each not in names
        and not (each.endswith(".") and any(name.startswith(each) for name in names))
    ]
    if missing:
        raise UsageError(
            f"the run has no metric {', '.join(missing)}",
            remedy=f"It has {', '.join(names) or 'none yet'}",
        )
    if len(columns) > MOST_COLUMNS:
        raise UsageError(
            f"{len(columns)} columns are wanted", remedy=f"Ask for at most {MOST_COLUMNS} at a time"
        )
    return tuple(columns or names[:MOST_COLUMNS])


def _library(name: str, *, install: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"{name} is not installed", remedy=f"Run `{install}`") from error
