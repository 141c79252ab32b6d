"""Promotes a model of a job to a folder of its own in the bucket."""

from __future__ import annotations

import re

from rl_console.actions.models.choice import Choice
from rl_console.actions.models.working import job_manifest, working
from rl_console.errors import UsageError
from rl_console.invocation import Invocation

NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
RETRIES = 2


def promote_model(
    invocation: Invocation,
    job: str,
    name: str,
    *,
    version: int | None,
    image: str,
    seconds: float,
) -> None:
    """Copy a model to ``promoted/NAME`` in the bucket, and print its URI.

    Args:
        invocation: the cluster.
        job: whose model.
        name: of the promoted model.
        version: None: the final model, or else the newest version.
        image: of the sampler; empty: the job's.
        seconds: until it must be complete.

    Raises:
        ConsoleError: there is no such model, another one has the name, a right is missing, or the
            time is over.
    """
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name of a model",
            remedy="Use up to 63 lower-case letters, digits, dots and dashes",
        )
    cluster = invocation.cluster()
    choice = Choice.of(cluster, cluster.default_namespace, job, version)
    images = choice.images(sampler=image, engine=None)
    manifest = job_manifest(
        choice,
        images,
        verb="promote",
        arguments=["promote", "--name", name],
        seconds=seconds,
        retries=RETRIES,
    )
    with working(cluster, manifest, seconds=seconds) as made:
        ended = made.wait(lambda state: state.phase == "Succeeded")
    print(ended.message)
