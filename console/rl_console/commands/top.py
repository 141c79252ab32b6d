"""``top``: what jobs use and how fast they are."""

from __future__ import annotations

from typing import Annotated

import typer

from rl_console.invocation import Invocation, add


def top(
    invocation: Invocation,
    job: Annotated[str | None, typer.Argument(help="Show the pods of this job.")] = None,
    *,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Show the jobs of every namespace.")
    ] = False,
) -> None:
    """Show speed and resources of jobs, or the pods of a job.

    CPU and memory of pods need metrics-server.
    """
    from rl_console.actions.usage import of_jobs, of_pods
    from rl_console.output import show

    cluster = invocation.cluster()
    namespace = cluster.default_namespace
    if job is not None:
        cluster.raw_job(namespace, job)
        show(of_pods(cluster, namespace, job), invocation.output)
        return
    chosen = "" if all_namespaces else namespace
    show(of_jobs(cluster.raw_jobs(chosen), namespace=chosen), invocation.output)


def register(app: typer.Typer) -> None:
    """Add the command."""
    add(app, top, output=True, examples=["top -A", "top gsm8k -n research"])
