"""``download`` and ``promote``: models of a job outside of its training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rl_console.invocation import Invocation, add

Version = Annotated[
    int | None,
    typer.Argument(min=1, help="Published version. Default: the final model, or the newest."),
]
Image = Annotated[str, typer.Option(help="Sampler image of the pod. Default: the job's.")]
Timeout = Annotated[float, typer.Option(min=1, help="Seconds until it must be complete.")]


def download(
    invocation: Invocation,
    job: str,
    version: Version = None,
    *,
    to: Annotated[Path | None, typer.Option(help="Folder. Default: JOB-VERSION here.")] = None,
    image: Image = "",
    timeout: Timeout = 3600.0,
) -> None:
    """Download a model of a job.

    A pod in the namespace stages it from the bucket, and hands it out by a port-forward: Hugging
    Face layout, or PEFT's of an adapter. Repeated after an interruption, the command goes on.
    """
    from rl_console.actions.models.downloading import download_model

    download_model(invocation, job, version=version, to=to, image=image, seconds=timeout)


def promote(
    invocation: Invocation,
    job: str,
    name: Annotated[str, typer.Argument(help="Of the promoted model.")],
    version: Version = None,
    *,
    image: Image = "",
    timeout: Timeout = 3600.0,
) -> None:
    """Copy a model of a job to a folder that stays.

    A pod in the namespace writes it to promoted/NAME in the bucket, which retention does not
    delete, and prints the URI, which another RLJob may name as its model.
    """
    from rl_console.actions.models.promoting import promote_model

    promote_model(invocation, job, name, version=version, image=image, seconds=timeout)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add(app, download, examples=["download gsm8k", "download gsm8k 12 --to models/gsm8k-12"])
    add(app, promote, examples=["promote gsm8k gsm8k-v1", "promote gsm8k gsm8k-12 12"])
