"""What remains of a run to read: every step's metrics and the report at its end."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from rl_contracts.documents import metric_columns
from rl_contracts.documents.evaluation import EvaluationResult, mean_accuracy
from rl_contracts.documents.run import Run
from rl_contracts.documents.step_metrics import MetricsFile, StepMetrics
from rl_contracts.errors import ObjectMissingError, ObjectTooLargeError
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.stores import reports
from rl_contracts.stores.objects import Objects

log = logging.getLogger(__name__)

GROWTH = 0.05


def write_metrics(
    objects: Objects, prefix: str, metrics: Sequence[StepMetrics], *, epoch: int
) -> None:
    """Write the epoch's ``metrics.jsonl``, one line for each step so far, and ``metrics.columns``.

    The columns come second: they may lack the last steps, but never hold more than the lines.
    """
    lines = [metric.model_dump_json() for metric in metrics]
    data = "".join(f"{line}\n" for line in lines).encode()
    objects.put(reports.key(prefix, reports.METRICS, epoch=epoch), data)
    columns = metric_columns.encode(metrics)
    objects.put(reports.key(prefix, reports.COLUMNS, epoch=epoch), columns)


def write_metrics_if_due(
    objects: Objects,
    prefix: str,
    metrics: Sequence[StepMetrics],
    *,
    epoch: int,
    written: MetricsFile | None,
) -> MetricsFile:
    """Write ``metrics.jsonl`` once it has grown by ``GROWTH``; returns the newest file.

    So what is written for each step does not grow with the number of steps.
    """
    if written is not None and len(metrics) < (1 + GROWTH) * written.steps:
        return written
    write_metrics(objects, prefix, metrics, epoch=epoch)
    return MetricsFile(epoch=epoch, steps=len(metrics))


def read_metrics(objects: Objects, prefix: str, written: MetricsFile) -> list[StepMetrics]:
    """The metrics that a checkpoint refers to; empty, with a warning, where they are gone."""
    try:
        key = reports.key(prefix, reports.METRICS, epoch=written.epoch)
        lines = objects.get(key, most=reports.METRICS_BYTES).splitlines()
        metrics = [StepMetrics.model_validate_json(line) for line in lines[: written.steps]]
    except (ObjectMissingError, ObjectTooLargeError, ValidationError) as error:
        log.warning("the metrics of %d steps are lost: %s", written.steps, error)
        return []
    if len(metrics) < written.steps:
        log.warning("the metrics of %d steps are lost: the file is older", written.steps)
        return []
    return metrics


def write_report(objects: Objects, prefix: str, report: dict[str, Any], *, epoch: int) -> None:
    """Write the epoch's ``report.json``."""
    data = (json.dumps(report, indent=2) + "\n").encode()
    objects.put(reports.key(prefix, reports.REPORT, epoch=epoch), data)


def trainer_seconds(run: Run, evaluations: Sequence[EvaluationResult]) -> float:
    """Seconds from the first batch formed to the last update.

    Waits and restarts are included, evaluations between the two are not.
    """
    if run.first_batch_at is None or run.latest is None:
        return 0.0
    between = [evaluation for evaluation in evaluations if 0 < evaluation.step < run.latest.step]
    return run.latest.time - run.first_batch_at - sum(evaluation.seconds for evaluation in between)


def logprob_gap_mean(evaluations: Sequence[EvaluationResult]) -> float | None:
    """Mean |trainer - sampler| log-probability over the tokens of all evaluations."""
    tokens = sum(evaluation.tokens for evaluation in evaluations)
    if not tokens:
        return None
    return (
        sum(evaluation.logprob_gap_mean * evaluation.tokens for evaluation in evaluations) / tokens
    )


def compose(
    run: Run,
    spec: RLJobSpec,
    *,
    evaluations: Sequence[EvaluationResult],
    policy_versions: int,
    final_model: str,
) -> dict[str, Any]:
    """The report of a finished run.

    Accuracies are those of all validation prompts at the first evaluation temperature.

    Args:
        run: with its last step.
        spec: the manifest.
        evaluations: all of the run, oldest first.
        policy_versions: how many versions were published.
        final_model: ``s3://`` URI.
    """
    first = spec.training.evaluation.temperatures[0]
    validation = [
        evaluation
        for evaluation in evaluations
        if (evaluation.split, evaluation.temperature) == ("validation", first)
    ]
    totals, seconds = run.totals, trainer_seconds(run, evaluations)
    busy = totals.wait_seconds + totals.train_seconds
    return {
        "run": run.id,
        "job": run.job,
        "steps": run.step,
        "policyVersions": policy_versions,
        "accuracyBefore": mean_accuracy(
            evaluation for evaluation in validation if evaluation.step == 0
        ),
        "accuracyAfter": mean_accuracy(
            evaluation for evaluation in validation if evaluation.step == run.step
        ),
        "evaluations": [evaluation.model_dump() for evaluation in evaluations],
        "trainerSeconds": seconds,
        "maxStalenessSeen": totals.max_staleness_seen,
        "logprobGapMean": logprob_gap_mean(evaluations),
        "tokensPerSecond": totals.tokens_trained / seconds if seconds > 0 else 0.0,
        "trainerWaitShare": totals.wait_seconds / busy if busy else 0.0,
        "sampled": run.sampled.model_dump(),
        "restarts": max(0, run.trainers - 1),
        "notices": [notice.model_dump() for notice in run.notices],
        "finalModel": final_model,
    }
