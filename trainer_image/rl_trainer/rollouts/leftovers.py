"""Deletes what earlier epochs and finished runs leave behind and nothing needs any more."""

from __future__ import annotations

import logging

from rl_contracts.documents.run import Run
from rl_contracts.documents.task import Cause, Queue
from rl_contracts.stores.connect import Stores
from rl_trainer.algorithm.groups import Limits, task_fault
from rl_trainer.checkpoint import export, retention, unfinished
from rl_trainer.context.job import Job
from rl_trainer.rollouts import evaluate

log = logging.getLogger(__name__)

PUT_AWAY_TIMES = 3
TASKS_AT_A_TIME = 8
"""That are read together: each may have megabytes."""
STRAY_SECONDS = 3600.0
"""An object of a rollout or a batch without its document is a leftover after this age."""


def tidy(job: Job, run: Run, limits: Limits) -> None:
    """Delete what earlier epochs began and will never finish, or what cannot be trained any more.

    Call it when the lineage is replayed: a job that is refused there leaves all as it is.
    """
    evaluate.retire_leftovers(job)
    drop_of_other_manifests(job, limits)
    if run.durable is not None:
        job.stores.batches.mark_durable(job.run, through=run.durable.step)
    root = f"{job.prefix}policies/"
    folders = retention.folders(job.stores.objects.list(root), root=root)
    kept = {record.prefix for record in job.stores.policies.of_run(job.run)}
    for folder in retention.orphaned_policies(folders, kept=kept, epoch=job.epoch):
        job.stores.objects.delete_prefix(folder.prefix)
    export.delete_older(job)
    job.stores.rollouts.sweep(job.run, older_than_seconds=STRAY_SECONDS)
    job.stores.batches.sweep(job.run, older_than_seconds=STRAY_SECONDS)
    unfinished.abort_of_earlier_attempts(job)


def drop_of_other_manifests(job: Job, limits: Limits) -> None:
    """Take tasks out of the train queue whose groups this manifest cannot train.

    A job that continues a run may have another temperature or estimator. Nobody samples them any
    more, and they do not count as lost groups, of which too many end the attempt.
    """
    tasks = job.stores.tasks
    left = tasks.left(job.run, queue=Queue.TRAIN)
    for first in range(0, len(left), TASKS_AT_A_TIME):
        for task in tasks.get(left[first : first + TASKS_AT_A_TIME]).values():
            if reason := task_fault(task, limits):
                log.info("task %s is dropped: %s", task.id, reason)
                tasks.drop([task.id], reason=reason, cause=Cause.OVER)


def put_away(stores: Stores, run: str) -> None:
    """Empty the queues of a run that has succeeded.

    Call it only after the outcome is written: until then a newer trainer may need the tasks. A
    replaced trainer that still runs may insert tasks later; agents claim nothing of a run that has
    an outcome, so these only wait until the run's documents are deleted.
    """
    for queue in (Queue.TRAIN, Queue.EVALUATION):
        for _ in range(PUT_AWAY_TIMES):
            left = stores.tasks.left(run, queue=queue)
            if not left:
                break
            stores.tasks.drop(left, reason="the run is complete", cause=Cause.OVER)
