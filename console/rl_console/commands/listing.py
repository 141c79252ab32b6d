"""``list``: the jobs of a namespace or of all."""

from __future__ import annotations

from typing import Annotated

import typer

from rl_console.invocation import Invocation, add


def list_jobs(
    invocation: Invocation,
    *,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="List the jobs of every namespace.")
    ] = False,
    selector: Annotated[
        str, typer.Option("--selector", "-l", help="Only jobs with these labels, e.g. team=a.")
    ] = "",
    phase: Annotated[
        str, typer.Option(help="Only jobs of this phase, e.g. Running or Stalled.")
    ] = "",
) -> None:
    """List jobs with their progress."""
    from rl_console.actions.job_table import job_listing, phase_of
    from rl_console.output import show

    cluster = invocation.cluster()
    namespace = "" if all_namespaces else cluster.default_namespace
    jobs = cluster.raw_jobs(namespace, selector=selector, phase=phase_of(phase))
    show(job_listing(jobs, namespace=namespace), invocation.output)


def register(app: typer.Typer) -> None:
    """Add the command."""
    add(
        app,
        list_jobs,
        name="list",
        output=True,
        examples=["list -n research", "list -A --phase Stalled -o wide", "list -o json"],
    )
