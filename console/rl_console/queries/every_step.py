"""Metrics of every step of a run, by as many queries as that takes."""

from __future__ import annotations

from collections.abc import Iterator

from rl_console.queries.run_data import RunData
from rl_contracts.queries.answers import MetricsAnswer
from rl_contracts.queries.kinds import MOST_POINTS, MetricsQuery


def every_step(
    data: RunData, *, columns: tuple[str, ...], first: int, last: int | None
) -> Iterator[MetricsAnswer]:
    """Answers for [first, last] in the order of steps, in which every point is one step.

    Args:
        data: of the run.
        columns: as of ``MetricsQuery``.
        first: step.
        last: step; None: the newest one at the time of the first answer.
    """
    while True:
        window = first + MOST_POINTS - 1
        query = MetricsQuery(
            columns=columns,
            first=first,
            last=window if last is None else min(window, last),
            points=MOST_POINTS,
        )
        given = data.metrics(query)
        yield given
        last = given.last if last is None else min(last, given.last)
        first = max(window + 1, given.first)
        if first > last:
            return
