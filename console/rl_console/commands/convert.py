"""``convert``: options of other frameworks as a manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rl_console.invocation import Invocation, add


def convert(
    invocation: Invocation,
    framework: Annotated[
        str, typer.Argument(help="agentrl, verl, agentfly, trl, stateset or maxent.")
    ],
    file: Annotated[
        Path, typer.Argument(help="Script, YAML or Python file. Default: standard input.")
    ] = Path("-"),
    *,
    name: Annotated[str, typer.Option(help="Name of the job. Default: from the options.")] = "",
    out: Annotated[
        Path | None, typer.Option(help="File for the manifest. Default: print it.")
    ] = None,
) -> None:
    """Make a manifest of another framework's options.

    Each option is mapped, or listed with the reason. The manifest is printed, and what became of
    each option goes to standard error.
    """
    from rl_console.actions.converting import run

    run(framework, file, name=name, out=out)


def register(app: typer.Typer) -> None:
    """Add the command."""
    add(
        app,
        convert,
        examples=[
            "convert verl train.sh --out job.yaml",
            "convert stateset < train_trl_grpo.sh",
            "convert maxent recipe.yaml",
        ],
        cluster=False,
    )
