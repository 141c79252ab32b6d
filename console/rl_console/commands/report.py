"""``report``: what a run has learned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rl_console.invocation import Invocation, add


def report(
    invocation: Invocation,
    job: str,
    *,
    out: Annotated[Path, typer.Option(help="PNG file to write the reward curve to.")] = Path(
        "reward.png"
    ),
) -> None:
    """Print the evaluations and final model of a finished job, and draw its reward curve."""
    from rich.console import Console

    from rl_console.report import draw, read_metrics, read_report, table
    from rl_console.stores import bucket

    cluster = invocation.cluster()
    console = Console()
    finished = cluster.job(cluster.default_namespace, job)
    with bucket(cluster, invocation.tools, finished.namespace) as objects:
        prefix = f"{objects.prefix}runs/{finished.run}/"
        wanted = read_report(objects, prefix)
        metrics = read_metrics(objects, prefix)
    draw(metrics, wanted.evaluations, out)
    console.print(table(wanted))
    console.print(f"reward curve: {out}\nfinal model:  {wanted.final_model}", soft_wrap=True)


def register(app: typer.Typer) -> None:
    """Add the command."""
    add(app, report, examples=["report gsm8k -n research --out gsm8k.png"])
