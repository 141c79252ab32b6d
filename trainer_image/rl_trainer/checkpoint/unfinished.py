"""Aborts uploads in parts that killed processes began: their parts stay in the bucket for ever."""

from __future__ import annotations

import math

from rl_trainer.context.job import Job

OLD_SECONDS = 86_400.0
PASS_SECONDS = 3_600.0
"""Between two passes of an attempt."""


def abort_of_earlier_attempts(job: Job) -> None:
    """Abort the uploads of earlier attempts; call it before this one uploads anything.

    Uploads below ``overflow/`` stay: samplers may be writing rollouts there.
    """
    rollouts = f"{job.prefix}overflow/"
    job.stores.objects.abort_uploads(job.prefix, before=math.inf, but=rollouts)
    abort_old(job)


def abort_old(job: Job) -> None:
    """Abort uploads of the run, and of models from the hub, that are older than a day."""
    objects = job.stores.objects
    before = job.stores.mongo.now() - OLD_SECONDS  # seconds off the bucket's clock do not matter
    for prefix in (job.prefix, f"{objects.prefix}models/"):
        objects.abort_uploads(prefix, before=before)
