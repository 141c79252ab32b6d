"""What the run's document says of its data, so that a later attempt reads the same."""

from __future__ import annotations

from collections.abc import Sequence

from rl_contracts.documents.run import DatasetSummary, Run
from rl_contracts.errors import Refusal, RefusedError
from rl_trainer.data.dataset import Dataset


def pinned(run: Run) -> dict[str, str]:
    """Commits by name of a training source, which a run that has begun must go on with."""
    if run.step == 0:
        return {}
    return {dataset.name: dataset.revision for dataset in run.datasets if dataset.split == "train"}


def summaries(datasets: Sequence[Dataset], *, started: Run) -> list[DatasetSummary]:
    """Summaries of all sources.

    Args:
        datasets: as this attempt read them.
        started: the run before this attempt.

    Raises:
        RefusedError: a training source has changed since the run's first step: its positions
            would mean other records than before.
    """
    described = [_summary(dataset) for dataset in datasets]
    if started.step > 0:
        before = {
            dataset.name: dataset.sha256 for dataset in started.datasets if dataset.split == "train"
        }
        training = [summary for summary in described if summary.split == "train"]
        for number, summary in enumerate(training):
            if before.get(summary.name, summary.sha256) != summary.sha256:
                raise _changed(summary, number)
    return described


def _summary(dataset: Dataset) -> DatasetSummary:
    return DatasetSummary(
        split=dataset.split,
        name=dataset.source.name,
        uri=dataset.source.uri,
        records=len(dataset.examples),
        skipped=dataset.skipped,
        first_skipped=list(dataset.first_skipped),
        revision=dataset.revision,
        sha256=dataset.sha256,
    )


def _changed(summary: DatasetSummary, number: int) -> RefusedError:
    return RefusedError(
        Refusal(
            field=f"spec.data.train[{number}].uri",
            value=summary.uri[:200],
            reason="DatasetChanged",
            message="Its records are not those that the run began with.",
            remedy="Put the former file back, or make a new job for the new one.",
        )
    )
