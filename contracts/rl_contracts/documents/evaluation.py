"""Results of evaluations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from rl_contracts.documents.base import Document, Record

Series = tuple[str, str, float]
"""Split, source and temperature: only results that share all three can be compared by step. A name
of a source is unique within its split alone."""


class EvaluationResult(Record):
    """Result for a data source, sampled by a single policy version at a single temperature."""

    step: int
    version: int
    split: Literal["validation", "test"] = "validation"
    dataset: str = ""
    """Name of the source in the manifest."""
    temperature: float
    accuracy: float | None = None
    """Mean reward of all samples: avg@k with ``samples_per_prompt`` of them."""
    loss: float | None = None
    """Objective SFT, which samples nothing: mean -log π of the records' tokens; else None."""
    prompts: int
    """Prompts that were answered."""
    skipped: int = 0
    """Prompts that no sampler can process, e.g. longer than ``maxContextTokens``: they count in
    neither ``prompts`` nor ``accuracy``. Objective SFT: records that cannot be trained."""
    samples_per_prompt: int = 1
    pass_at: dict[str, float] = Field(default_factory=dict)
    """Pass@k by k, in [0, 1]: share of prompts that at least one of k samples answers; empty in
    documents of earlier releases."""
    tokens: int
    versions: dict[str, int] = Field(default_factory=dict)
    """Generated tokens by policy version, from the rollouts' spans; empty in documents of earlier
    releases."""
    logprob_gap_mean: float
    """Mean |trainer - sampler| log-probability over all generated tokens, equal weights."""
    logprob_gap_max: float
    seconds: float

    @property
    def series(self) -> Series:
        """What was measured, and at which temperature."""
        return self.split, self.dataset, self.temperature


class Evaluation(Document):
    """The results of one evaluation. The run names the last one, and each names the one before."""

    collection: ClassVar[str] = "evaluations"

    run: str
    epoch: int
    """Of the trainer that made it."""
    parent: str | None
    """The evaluation before it; None for the first."""
    results: list[EvaluationResult]


NEWEST_BYTES = 6 << 10
"""Of the results that the run document holds, as JSON; see ``newest``."""
MOST_SOURCES = 16
"""A manifest has at most 8 validation and 8 test sources."""


def newest(results: Sequence[EvaluationResult], *, temperature: float) -> list[EvaluationResult]:
    """The last result of each source and temperature, oldest first, as far as there is room.

    The results at one temperature are kept for all sources, because the status shows their mean. If
    these take more than ``NEWEST_BYTES``, they are without what the status does not show.

    Args:
        results: all results, oldest first.
        temperature: whose results are always kept, for the newest ``MOST_SOURCES`` sources.
    """
    place = {each.series: number for number, each in enumerate(results)}
    last = sorted({each.series: each for each in results}.values(), key=lambda e: -place[e.series])
    kept = [each for each in last if each.temperature == temperature][:MOST_SOURCES]
    if sum(map(_json_bytes, kept)) > NEWEST_BYTES:
        kept = [_for_status(each) for each in kept]
    size = sum(map(_json_bytes, kept))
    for each in last:
        if each.temperature == temperature:
            continue
        size += _json_bytes(each)
        if size > NEWEST_BYTES:
            break
        kept.append(each)
    return sorted(kept, key=lambda each: place[each.series])


def _json_bytes(result: EvaluationResult) -> int:
    return len(result.model_dump_json())


def _for_status(result: EvaluationResult) -> EvaluationResult:
    """The result without its tokens by version, and with the last pass@k alone."""
    last = str(result.samples_per_prompt)
    pass_at = {k: rate for k, rate in result.pass_at.items() if k == last}
    return result.model_copy(update={"versions": {}, "pass_at": pass_at})


def labels(results: Iterable[EvaluationResult]) -> dict[Series, str]:
    """A label of each series of a run, which names the split where the run has several."""
    measured = dict.fromkeys(each.series for each in results)
    several = len({split for split, _, _ in measured}) > 1
    names = {}
    for split, dataset, temperature in measured:
        beside = f"{split}, " if several and dataset else ""
        names[split, dataset, temperature] = (
            f"{dataset or split} ({beside}temperature {temperature:g})"
        )
    return names


def accuracy_curves(results: Sequence[EvaluationResult]) -> dict[str, dict[int, float]]:
    """Accuracies by step of each series of a run that has any, by its label.

    Args:
        results: all of a run, oldest first; the last one of a step counts.
    """
    names = labels(results)
    curves: dict[str, dict[int, float]] = {}
    for each in results:
        if each.accuracy is not None:
            curves.setdefault(names[each.series], {})[each.step] = each.accuracy
    return curves


def prompt_count(result: EvaluationResult) -> str:
    """The number of prompts for a table, with those that were skipped."""
    skipped = f" (+ {result.skipped} skipped)" if result.skipped else ""
    return f"{result.prompts}{skipped}"


def mean_accuracy(results: Iterable[EvaluationResult]) -> float | None:
    """Mean reward over the prompts of all sources; None when no source has an accuracy."""
    measured = [
        (result.accuracy, result.prompts) for result in results if result.accuracy is not None
    ]
    prompts = sum(number for _, number in measured)
    return sum(mean * number for mean, number in measured) / prompts if prompts else None


def mean_pass_rate(results: Iterable[EvaluationResult]) -> float | None:
    """Share of the prompts that at least one sample answered; None when not measured."""
    known = [result for result in results if result.pass_at]
    passed = sum(
        result.pass_at[str(result.samples_per_prompt)] * result.prompts for result in known
    )
    prompts = sum(result.prompts for result in known)
    return passed / prompts if prompts else None
