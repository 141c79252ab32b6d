"""``follow``: a job until it ends."""

from __future__ import annotations

from typing import Annotated

import typer

from rl_console.invocation import Invocation, add


def follow(
    invocation: Invocation,
    job: str,
    *,
    timeout: Annotated[
        float, typer.Option(min=0, help="Stop watching after this many seconds; the job goes on.")
    ] = 86400.0,
    patience: Annotated[
        float,
        typer.Option(min=0, help="Exit after the job has been Stalled for this many seconds."),
    ] = 60.0,
) -> None:
    """Show a job until it ends. The exit code is 0 only if the job completed."""
    from rich.console import Console

    from rl_console.following.follow import Limits
    from rl_console.following.session import Session

    cluster = invocation.cluster()
    namespace = cluster.default_namespace
    cluster.within(timeout).raw_job(namespace, job)  # later, an outage or a deletion is watched
    session = Session(cluster=cluster, console=Console(), namespace=namespace, job=job)
    session.finish(session.follow(Limits(total_seconds=timeout, stalled_seconds=patience)))


def register(app: typer.Typer) -> None:
    """Add the command."""
    add(app, follow, examples=["follow gsm8k -n research", "follow gsm8k --timeout 3600"])
