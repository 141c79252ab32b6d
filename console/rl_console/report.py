"""The report of a finished run: evaluations, reward curve and final model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from rl_console import output
from rl_console.errors import UsageError
from rl_console.output import Column
from rl_contracts.documents.evaluation import EvaluationResult, accuracy_curves, prompt_count
from rl_contracts.documents.step_metrics import StepMetrics
from rl_contracts.stores import reports
from rl_contracts.stores.objects import Objects

SMOOTHING_STEPS = 5


class Report(BaseModel):
    """``report.json`` of a run, written by its trainer at the end."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, frozen=True
    )

    run: str
    job: str
    steps: int
    policy_versions: int
    accuracy_before: float | None = None
    """Mean reward on the validation data at the first temperature; None without evaluation."""
    accuracy_after: float | None = None
    evaluations: list[EvaluationResult]
    trainer_seconds: float
    """From the first batch formed to the last update; waiting included, evaluation not."""
    max_staleness_seen: int
    logprob_gap_mean: float | None = None
    """Mean |trainer - sampler| log-probability of all evaluated tokens."""
    tokens_per_second: float
    trainer_wait_share: float
    restarts: int
    final_model: str
    """``s3://`` URI."""


def read_report(objects: Objects, run_prefix: str) -> Report:
    """The report of a run; raises ObjectMissingError while there is none."""
    return Report.model_validate_json(reports.newest(objects, run_prefix, reports.REPORT))


def read_metrics(objects: Objects, run_prefix: str) -> list[StepMetrics]:
    """Metrics of every step, in order; raises ObjectMissingError while there are none."""
    lines = reports.newest(objects, run_prefix, reports.METRICS).splitlines()
    return [StepMetrics.model_validate_json(line) for line in lines if line.strip()]


def smoothed(values: list[float], *, window: int) -> list[float]:
    """Mean of each value and up to ``window - 1`` before it."""
    starts = [max(0, end - window) for end in range(1, len(values) + 1)]
    return [sum(values[start:end]) / (end - start) for end, start in enumerate(starts, start=1)]


def draw(
    steps: Sequence[int],
    rewards: Sequence[float | None],
    evaluations: Sequence[EvaluationResult],
    path: Path,
) -> None:
    """Draw mean reward by training step, with evaluations as points, into a PNG file.

    Raises:
        UsageError: the file cannot be written.
    """
    from matplotlib.figure import Figure  # slow to import, and only needed here

    curves = accuracy_curves(evaluations)
    figure = Figure(figsize=(8, 4.5 + 0.17 * len(curves)), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    known = [(step, value) for step, value in zip(steps, rewards, strict=True) if value is not None]
    places, values = [step for step, _ in known], [value for _, value in known]
    axes.plot(places, values, color="tab:blue", alpha=0.35, label="training reward")
    mean = smoothed(values, window=SMOOTHING_STEPS)
    axes.plot(places, mean, color="tab:blue", label=f"mean of {SMOOTHING_STEPS} steps")
    for number, (label, curve) in enumerate(curves.items()):
        axes.plot(
            list(curve),
            list(curve.values()),
            color=f"C{number % 9 + 1}",  # C0 is that of the reward
            marker="o",
            linestyle="--",
            label=f"held-out accuracy, {label}",
        )
    accuracies = [value for curve in curves.values() for value in curve.values()]
    axes.set(xlabel="training step", ylabel="reward", ylim=limits([*values, *accuracies]))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", fontsize="small")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without a format it adds an ending to a name that has none.
        figure.savefig(path, format=path.suffix.removeprefix(".") or "png")
    except (OSError, ValueError) as error:  # ValueError: no such kind of picture
        cause = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"{path} cannot be written: {cause}", remedy="Name a PNG file with --out"
        ) from error


def limits(values: Sequence[float]) -> tuple[float, float]:
    """Of an axis that shows all values and the range of an accuracy, with a little room."""
    known = [value for value in values if math.isfinite(value)]
    low, high = min([0.0, *known]), max([1.0, *known])
    room = 0.02 * (high - low)
    return low - room if low < 0 else low, high + room


def table(job: str, evaluations: Sequence[EvaluationResult]) -> str:
    """Evaluations of a job's run as a table; supervised runs show the loss instead of accuracy."""
    if any(evaluation.loss is not None for evaluation in evaluations):
        return _losses(job, evaluations)
    names = (
        *("POLICY", "STEP", "DATA", "SPLIT", "TEMPERATURE", "ACCURACY", "PASS@K"),
        *("PROMPTS", "TOKENS", "MEAN |Δ| LOGP"),
    )
    rows = [
        (
            str(evaluation.version),
            str(evaluation.step),
            evaluation.dataset,
            evaluation.split,
            f"{evaluation.temperature:g}",
            "–" if evaluation.accuracy is None else f"{evaluation.accuracy:.3f}",
            " ".join(f"{k}: {rate:.3f}" for k, rate in evaluation.pass_at.items()),
            prompt_count(evaluation),
            str(evaluation.tokens),
            f"{evaluation.logprob_gap_mean:.1e}",
        )
        for evaluation in evaluations
    ]
    return _titled(f"{job}: held-out accuracy", names, rows)


def _losses(job: str, evaluations: Sequence[EvaluationResult]) -> str:
    rows = [
        (
            str(evaluation.step),
            evaluation.dataset,
            evaluation.split,
            "–" if evaluation.loss is None else f"{evaluation.loss:.4f}",
            str(evaluation.prompts),
            str(evaluation.tokens),
        )
        for evaluation in evaluations
    ]
    names = ("STEP", "DATA", "SPLIT", "LOSS", "RECORDS", "TOKENS")
    return _titled(f"{job}: held-out loss", names, rows)


def _titled(title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    columns = [Column(heading=name, right=True) for name in names]
    return f"{title}\n{output.table(columns, rows)}"
