"""What a job has learned: from its status at any time, and from its data where they can be read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rl_console.actions.describe import describe_progress
from rl_console.actions.run_data.viewing import values_of
from rl_console.dashboard.panels import COLUMNS
from rl_console.errors import ConsoleError
from rl_console.invocation import Invocation
from rl_console.jobs import JobObject
from rl_console.output import Output, document, width
from rl_console.plain_text import plain_line
from rl_console.queries.cluster_source import ClusterSource
from rl_console.queries.run_data import RunData
from rl_console.report import draw, table
from rl_contracts.documents.evaluation import EvaluationResult
from rl_contracts.queries.answers import MetricsAnswer
from rl_contracts.queries.kinds import MOST_POINTS, MetricsQuery

REWARD = "reward_mean"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is stored of a run."""

    evaluations: Sequence[EvaluationResult] = ()
    metrics: MetricsAnswer | None = None
    """None: no step is trained."""
    report: dict[str, Any] | None = None
    """What the trainer wrote at its end."""
    unread: str = ""
    """What could not be read, and why; empty: nothing, or nothing was asked."""


def report_on(invocation: Invocation, name: str, *, out: Path, operator_namespace: str) -> None:
    """Print the report of a job in the wanted form.

    Raises:
        ConsoleError: the job cannot be read. Data that cannot be read are only noted.
    """
    cluster = invocation.cluster()
    job = cluster.job(cluster.default_namespace, name)
    source = ClusterSource(cluster, invocation.tools, operator_namespace=operator_namespace)
    try:
        data = RunData(source, job.namespace, job.name)
        known = read(data) if job.status.attempt else Known()
    finally:
        source.close()
    show_report(job, known, invocation.output, out)


def read(data: RunData) -> Known:
    """What is stored of a run, in three questions; errors become a sentence."""
    try:
        summary = data.summary()
        query = MetricsQuery(columns=COLUMNS, points=MOST_POINTS)
        metrics = data.metrics(query) if summary.step else None
    except ConsoleError as error:
        return Known(unread=f"no evaluations and no curve: {error}")
    known = Known(evaluations=summary.evaluations, metrics=metrics)
    if summary.outcome is None:
        return known
    try:
        return replace(known, report=data.report())
    except ConsoleError as error:  # e.g. an operator of an earlier release has no such question
        return replace(known, unread=f"nothing of what the trainer wrote at its end: {error}")


def show_report(job: JobObject, known: Known, output: Output, out: Path) -> None:
    """Print what is known, and draw the curve into a file."""
    if output in (Output.JSON, Output.YAML):
        print(document(_values(job, known), output))
    else:
        _print(job, known, out)
    if known.unread:
        print(plain_line(f"note: {known.unread}"), file=sys.stderr)


def _print(job: JobObject, known: Known, out: Path) -> None:
    print(describe_progress(job, width=width()))
    if known.evaluations:
        print(f"\n{table(job.name, known.evaluations)}")
    if known.metrics is not None and REWARD in known.metrics.series:
        _draw(known.metrics, known.evaluations, out)


def _draw(metrics: MetricsAnswer, evaluations: Sequence[EvaluationResult], out: Path) -> None:
    try:
        draw(metrics.steps, metrics.series[REWARD].mean, evaluations, out)
    except ModuleNotFoundError as error:  # the single file does not hold it
        print(f"note: no curve, {error.name} is missing: pip install matplotlib", file=sys.stderr)
    else:
        print(f"\nreward curve: {out}, up to step {metrics.steps[-1]}")


def _values(job: JobObject, known: Known) -> dict[str, Any]:
    """The same for programs; ``report`` is null until the run has ended."""
    status = job.status.model_dump(mode="json", by_alias=True, exclude_none=True)
    kept = ("phase", "progress", "weights", "datasets", "finalModel", "startTime", "completionTime")
    return {
        "job": job.name,
        "namespace": job.namespace,
        "run": job.run,
        **{key: status[key] for key in kept if key in status},
        "report": known.report,
        "evaluations": [values_of(each) for each in known.evaluations],
        "metrics": None if known.metrics is None else values_of(known.metrics),
    }
