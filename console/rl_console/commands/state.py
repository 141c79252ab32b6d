"""``status`` and ``watch``: the state of jobs, now and as it changes."""

from __future__ import annotations

from typing import Annotated

import typer

from rl_console.invocation import Invocation, add

INTERVAL_SECONDS = 2.0


def status(invocation: Invocation, job: str) -> None:
    """Show a job in full.

    Progress, pools, data, attempts and conditions.
    """
    from rl_console.actions.describe import describe_job
    from rl_console.actions.job_table import job_listing
    from rl_console.jobs import JobObject
    from rl_console.output import Output, show, width
    from rl_console.view import Snapshot

    cluster = invocation.cluster()
    namespace = cluster.default_namespace
    raw = cluster.raw_job(namespace, job)
    if invocation.output is not Output.TABLE:
        show(job_listing([raw], namespace=namespace, single=True), invocation.output)
        return
    pools = tuple(cluster.pools(namespace, job))
    print(describe_job(Snapshot(job=JobObject.parse(raw), pools=pools), width=width()))


def watch(
    invocation: Invocation,
    job: Annotated[str | None, typer.Argument(help="Only this job.")] = None,
    *,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Watch the jobs of every namespace.")
    ] = False,
    interval: Annotated[
        float, typer.Option(min=0.5, help="Seconds between two reads.")
    ] = INTERVAL_SECONDS,
    timeout: Annotated[
        float | None, typer.Option(min=0, help="Stop after this many seconds. Default: never.")
    ] = None,
) -> None:
    """Print a line for each job, and one whenever it changes."""
    from rl_console.actions.watching import watch_jobs

    cluster = invocation.cluster()
    namespace = "" if all_namespaces and job is None else cluster.default_namespace
    watch_jobs(
        cluster,
        namespace,
        job=job,
        interval=interval,
        seconds=timeout,
        output=invocation.output,
    )


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add(app, status, output=True, examples=["status gsm8k -n research", "status gsm8k -o yaml"])
    add(app, watch, output=True, examples=["watch -n research", "watch gsm8k --timeout 600"])
