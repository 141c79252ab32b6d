"""``plan``: what a job needs, without a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rl_console.invocation import Invocation, add


def plan(
    invocation: Invocation,
    *,
    manifest: Annotated[Path, typer.Option("--filename", "-f", help="Manifest with RLJobs.")],
    config: Annotated[
        Path,
        typer.Option(
            help="config.json of the model. That of hf://ORG/NAME is at "
            "https://huggingface.co/ORG/NAME/raw/main/config.json."
        ),
    ],
    device_gib: Annotated[float, typer.Option(min=1, help="Memory of one GPU in GiB.")] = 80.0,
) -> None:
    """Show what a job needs of each GPU, by formula. Asks no cluster.

    The exit code is 1 if a job cannot fit.
    """
    from rl_console.plan import plan as lines

    for line in lines(manifest, config, device_gib=device_gib):
        print(line)


def register(app: typer.Typer) -> None:
    """Add the command."""
    add(
        app,
        plan,
        examples=["plan -f job.yaml --config qwen2.5-0.5b/config.json --device-gib 24"],
        cluster=False,
    )
