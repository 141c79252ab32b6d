"""Keeps the results of evaluations: a document for each evaluation, the last named by the run."""

from __future__ import annotations

from collections.abc import Sequence

from rl_contracts.documents.evaluation import Evaluation, EvaluationResult, newest
from rl_contracts.documents.run import Run
from rl_contracts.ids import RunId, evaluation_id
from rl_trainer.context.job import Job, Progress
from rl_trainer.errors import TrainingFailedError


def of_run(job: Job, run: Run) -> list[EvaluationResult]:
    """All results of the run's lineage, oldest first.

    Raises:
        TrainingFailedError: a document is missing.
    """
    try:
        return job.stores.evaluations.lineage(run)
    except LookupError as error:
        raise TrainingFailedError(reason="LineageBroken", message=str(error)) from error


def record(job: Job, progress: Progress, new: Sequence[EvaluationResult]) -> None:
    """Add results to the lineage: their document is written before the run names it.

    Raises:
        FencedOutError: a newer trainer took over the run; the document does not count.
    """
    # An earlier release kept all results in the run document, which now holds the newest alone.
    kept_before = progress.evaluations if progress.last_evaluation is None else []
    document = Evaluation(
        id=evaluation_id(RunId(job.run), len(progress.evaluations), job.epoch),
        run=job.run,
        epoch=job.epoch,
        parent=progress.last_evaluation,
        results=[*kept_before, *new],
    )
    job.stores.evaluations.put([document])
    progress.evaluations += new
    progress.last_evaluation = document.id
    temperature = job.spec.training.evaluation.temperatures[0]
    job.stores.runs.record_evaluation(
        job.run,
        epoch=job.epoch,
        last=document.id,
        newest=newest(progress.evaluations, temperature=temperature),
    )
