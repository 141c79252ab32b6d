"""What a job has learned: from its status at any time, and from the bucket if that can be read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_console.actions.describe import describe_progress
from rl_console.invocation import Invocation
from rl_console.jobs import JobObject
from rl_console.kube import Cluster
from rl_console.output import Output, document, width
from rl_console.plain_text import plain_line
from rl_console.report import Report, draw, read_metrics, read_report, table
from rl_console.stores import bucket
from rl_console.tools import Tools
from rl_contracts.documents.evaluation import EvaluationResult
from rl_contracts.documents.step_metrics import StepMetrics
from rl_contracts.errors import ObjectMissingError, RLError
from rl_contracts.stores.objects import Objects


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the bucket holds of a run."""

    report: Report | None = None
    metrics: Sequence[StepMetrics] = ()
    unread: str = ""
    """Why the bucket could not be read; empty: it was."""


def report_on(invocation: Invocation, name: str, *, out: Path) -> None:
    """Print the report of a job in the wanted form.

    Raises:
        ConsoleError: the job cannot be read. A bucket that cannot be read is only noted.
    """
    cluster = invocation.cluster()
    job = cluster.job(cluster.default_namespace, name)
    known = _read(cluster, invocation.tools, job) if job.status.attempt else Known()
    if invocation.output in (Output.JSON, Output.YAML):
        print(document(_values(job, known), invocation.output))
    else:
        _print(job, known, out)
    if known.unread:
        note = f"note: no evaluations and no curve, the bucket cannot be read: {known.unread}"
        print(plain_line(note), file=sys.stderr)


def _read(cluster: Cluster, tools: Tools, job: JobObject) -> Known:
    try:
        with bucket(cluster, tools, job.namespace) as objects:
            prefix = f"{objects.prefix}runs/{job.run}/"
            return Known(report=_report(objects, prefix), metrics=_metrics(objects, prefix))
    except RLError as error:
        return Known(unread=str(error))


def _report(objects: Objects, prefix: str) -> Report | None:
    """The report, which the trainer writes at its end."""
    try:
        return read_report(objects, prefix)
    except ObjectMissingError:
        return None


def _metrics(objects: Objects, prefix: str) -> Sequence[StepMetrics]:
    """The metrics, which the trainer writes with checkpoints."""
    try:
        return read_metrics(objects, prefix)
    except ObjectMissingError:
        return ()


def _print(job: JobObject, known: Known, out: Path) -> None:
    print(describe_progress(job, width=width()))
    evaluations = known.report.evaluations if known.report is not None else []
    if known.report is not None:
        print(f"\n{table(known.report)}")
    if known.metrics:
        _draw(known.metrics, evaluations, out)


def _draw(
    metrics: Sequence[StepMetrics], evaluations: Sequence[EvaluationResult], out: Path
) -> None:
    try:
        draw(list(metrics), list(evaluations), out)
    except ModuleNotFoundError as error:  # the single file does not hold it
        print(f"note: no curve, {error.name} is missing: pip install matplotlib", file=sys.stderr)
    else:
        print(f"\nreward curve: {out}, up to step {metrics[-1].step}")


def _values(job: JobObject, known: Known) -> dict[str, Any]:
    """The same for programs; ``report`` is null until the run has ended."""
    status = job.status.model_dump(mode="json", by_alias=True, exclude_none=True)
    kept = ("phase", "progress", "weights", "datasets", "finalModel", "startTime", "completionTime")
    report = known.report
    return {
        "job": job.name,
        "namespace": job.namespace,
        "run": job.run,
        **{key: status[key] for key in kept if key in status},
        "report": None if report is None else report.model_dump(mode="json", by_alias=True),
        "metrics": [metric.model_dump(mode="json") for metric in known.metrics],
    }
