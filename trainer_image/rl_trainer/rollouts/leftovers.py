"""Deletes what earlier epochs and finished runs leave behind and nothing needs any more."""

from __future__ import annotations

from rl_contracts.documents.run import Run
from rl_contracts.documents.task import Cause, Queue, TaskState
from rl_contracts.stores.connect import Stores
from rl_trainer.checkpoint import export, retention
from rl_trainer.context.job import Job
from rl_trainer.rollouts import evaluate

STRAY_SECONDS = 3600.0
"""An object of a rollout without its document counts as a leftover after this age."""


def tidy(job: Job, run: Run) -> None:
    """Delete what earlier epochs began and will never finish."""
    evaluate.retire_leftovers(job)
    if run.durable is not None:
        job.stores.batches.mark_durable(job.run, through=run.durable.step)
    root = f"{job.prefix}policies/"
    folders = retention.folders(job.stores.objects.list(root), root=root)
    kept = {record.prefix for record in job.stores.policies.of_run(job.run)}
    for folder in retention.orphaned_policies(folders, kept=kept, epoch=job.epoch):
        job.stores.objects.delete_prefix(folder.prefix)
    export.delete_older(job)
    job.stores.rollouts.sweep(job.run, older_than_seconds=STRAY_SECONDS)


def put_away(stores: Stores, run: str) -> None:
    """Empty the queues of a run that has succeeded.

    Call it only after the outcome is written: until then a newer trainer may need the tasks.
    """
    for queue in (Queue.TRAIN, Queue.EVALUATION):
        for state in TaskState:
            left = stores.tasks.find(run, queue=queue, state=state)
            names = [task.id for task in left]
            stores.tasks.drop(names, reason="the run is complete", cause=Cause.OVER)
