"""Step metrics in a range, summarized to as many points as a chart has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rl_contracts.documents import metric_columns
from rl_contracts.documents.run import Run
from rl_contracts.queries.answers import MetricsAnswer, Series
from rl_contracts.queries.kinds import MOST_COLUMNS, MetricsQuery
from rl_contracts.queries.lineage import Lineage
from rl_contracts.stores.connect import Stores

ALWAYS = ("step", "time")
NAN = float("nan")


def answer(stores: Stores, run: Run, query: MetricsQuery) -> MetricsAnswer:
    """Read the columns and summarize them."""
    lineage = Lineage.of(stores, run)
    last = run.step if query.last is None else min(query.last, run.step)
    tail = [dict(metric_columns.flat(each)) for each in lineage.tail_metrics(query.first, last)]
    names = _names(lineage, tail)
    chosen = _chosen(names, query.columns)
    rows = lineage.rows(query.first, last)
    wanted = [*ALWAYS, *chosen]
    read = lineage.file.read(wanted, rows) if lineage.file is not None and rows else {}

    def column(name: str) -> list[float]:
        """As a list, whose items are read several times; only one at a time, for they are large."""
        filed = read[name].tolist() if name in read else [NAN] * len(rows)
        return [*filed, *(row.get(name, NAN) for row in tail)]

    steps, times = [int(step) for step in column("step")], column("time")
    header = lineage.file.header if lineage.file else None
    oldest = header.first if header and header.rows else (int(tail[0]["step"]) if tail else 0)
    buckets = _buckets(len(steps), query.points)
    return MetricsAnswer(
        steps=[steps[bucket.stop - 1] for bucket in buckets],
        times=[times[bucket.stop - 1] for bucket in buckets],
        series={name: summarize(column(name), buckets) for name in chosen},
        names=names,
        first=oldest,
        last=run.step,
        rows=len(steps),
    )


def _names(lineage: Lineage, tail: Sequence[dict[str, float]]) -> list[str]:
    filed = [column.name for column in lineage.file.header.columns] if lineage.file else []
    return sorted({*filed, *(name for row in tail for name in row)} - set(ALWAYS))


def _chosen(names: Sequence[str], wanted: Sequence[str]) -> list[str]:
    prefixes = tuple(name for name in wanted if name.endswith("."))
    chosen = [name for name in names if name in wanted or (prefixes and name.startswith(prefixes))]
    return chosen[:MOST_COLUMNS]


def _buckets(rows: int, points: int) -> list[slice]:
    size = max(1, -(-rows // points))
    return [slice(begin, min(rows, begin + size)) for begin in range(0, rows, size)]


def summarize(values: list[Any], buckets: Sequence[slice]) -> Series:
    """Mean, least and largest value of each bucket; None where a bucket has no number."""
    single = all(bucket.stop - bucket.start == 1 for bucket in buckets)
    if single:
        return Series(mean=[_short(value) for value in values])
    mean, low, high = [], [], []
    for bucket in buckets:
        items = values[bucket]
        total = sum(items)
        if total - total != 0:  # NaN or infinite
            items = [item for item in items if item - item == 0]
            total = sum(items)
        mean.append(_short(total / len(items)) if items else None)
        low.append(_short(min(items)) if items else None)
        high.append(_short(max(items)) if items else None)
    return Series(mean=mean, low=low, high=high)


def _short(value: float) -> float | None:
    """Seven digits, as float32 has; None for what is not finite, which JSON does not know."""
    return float(f"{value:.7g}") if value - value == 0 else None
