"""Curves of two runs beside each other, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rl_console.actions.comparing import is_file
from rl_console.actions.run_data.viewing import viewed
from rl_console.errors import NotFoundError, UsageError
from rl_console.figures import number
from rl_console.invocation import Invocation
from rl_console.output import Column, Listing, Shown, table, width
from rl_console.queries.source import checked
from rl_contracts.queries.answers import MetricsAnswer
from rl_contracts.queries.kinds import MetricsQuery

POINTS = 12
"""Rows of a table; of a longer run each is a mean."""
Row = tuple[int, float | None, float | None]
"""The last step that the values stand for, and those of both runs."""


def with_curves(
    invocation: Invocation,
    options: Listing,
    jobs: tuple[str, str],
    metrics: Sequence[str],
    *,
    operator_namespace: str,
) -> Shown:
    """The options in which two jobs differ, and curves of both runs up to their last common step.

    Args:
        invocation: cluster and namespace.
        options: that differ.
        jobs: names of both.
        metrics: names of columns, e.g. ``reward_mean``.
        operator_namespace: of the operator.

    Raises:
        NotFoundError: a run has trained no step.
        UsageError: there is no such metric, or a manifest is compared.
    """
    for job in filter(is_file, jobs):
        raise UsageError(
            f"{job} is a manifest and has no curves", remedy="Name two jobs, or leave out --curve"
        )
    with (
        viewed(invocation, jobs[0], operator_namespace=operator_namespace) as first,
        viewed(invocation, jobs[1], operator_namespace=operator_namespace) as second,
    ):
        known = [each.metrics(MetricsQuery(points=1)) for each in (first, second)]
        _check(jobs, known, metrics)
        with checked():
            query = MetricsQuery(
                columns=tuple(metrics),
                first=max(1, *(each.first for each in known)),
                last=min(each.last for each in known),
                points=POINTS,
            )
        given = (first.metrics(query), second.metrics(query))
    curves = {name: _rows(*given, name) for name in metrics}
    text = "\n\n".join([_options(options), *_tables(jobs, curves)])
    return Shown(
        text=text,
        values={"options": options.objects, "curves": _values(curves)},
        names=[f"{options.kind}/{each['metadata']['name']}" for each in options.objects],
    )


def _check(jobs: tuple[str, str], known: Sequence[MetricsAnswer], metrics: Sequence[str]) -> None:
    for job, each in zip(jobs, known, strict=True):
        if not each.last:
            raise NotFoundError(
                doing=f"reading the curves of {job}", remedy="It has trained no step yet"
            )
        missing = sorted(set(metrics) - set(each.names))
        if missing:
            names = ", ".join(each.names)
            raise UsageError(f"{job} has no metric {missing[0]}", remedy=f"It has {names}")


def _rows(first: MetricsAnswer, second: MetricsAnswer, name: str) -> list[Row]:
    before, after = (
        dict(zip(each.steps, each.series[name].mean, strict=True)) for each in (first, second)
    )
    return [(step, before.get(step), after.get(step)) for step in sorted({*before, *after})]


def _options(listing: Listing) -> str:
    return table(listing.columns, listing.rows, width=width()) if listing.rows else listing.empty


def _tables(jobs: tuple[str, str], curves: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    columns = [Column(heading=each, right=True) for each in ("STEP", *jobs)]
    for name, curve in curves.items():
        rows = [(str(step), number(first, 4), number(second, 4)) for step, first, second in curve]
        yield f"{name}\n{table(columns, rows, width=width())}"


def _values(curves: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    return {
        name: [{"step": step, "first": first, "second": second} for step, first, second in curve]
        for name, curve in curves.items()
    }
