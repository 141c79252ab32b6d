"""``logs``: of a run's trainer, samplers and engines."""

from __future__ import annotations

from typing import Annotated

import typer

from rl_console.invocation import Invocation, add


def logs(
    invocation: Invocation,
    job: str,
    part: Annotated[
        str, typer.Argument(help="trainer, agent, engine, code, sandbox or stage.")
    ] = "trainer",
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new lines as they come.")
    ] = False,
    tail: Annotated[int, typer.Option(min=-1, help="Last lines of each container; -1: all.")] = 100,
    since: Annotated[
        int | None, typer.Option(min=1, help="Only lines of the last N seconds.")
    ] = None,
    pod: Annotated[str, typer.Option(help="Only this pod.")] = "",
    attempt: Annotated[
        int | None, typer.Option(min=1, help="Attempt of the trainer. Default: the newest.")
    ] = None,
    replica: Annotated[
        int | None, typer.Option("--replica", "--rank", min=0, help="Only this pod of the trainer.")
    ] = None,
    previous: Annotated[
        bool,
        typer.Option("--previous", "-p", help="Logs of the container before its last restart."),
    ] = False,
    timestamps: Annotated[bool, typer.Option(help="Begin lines with their time.")] = False,
) -> None:
    """Print logs of a job's pods.

    Lines of several pods begin with the names of pod and container.
    """
    from rl_console.actions.log_choice import choose
    from rl_console.actions.log_streams import LogOptions, print_logs

    cluster = invocation.cluster()
    namespace = cluster.default_namespace
    cluster.raw_job(namespace, job)
    pods = cluster.pods_of(namespace, job)
    sources = choose(
        pods,
        job=job,
        options=cluster.options(namespace),
        part=part,
        pod=pod,
        attempt=attempt,
        replica=replica,
    )
    options = LogOptions(
        follow=follow,
        tail=None if tail < 0 else tail,
        since_seconds=since,
        previous=previous,
        timestamps=timestamps,
    )
    print_logs(cluster, namespace, sources, options)


def register(app: typer.Typer) -> None:
    """Add the command."""
    add(
        app,
        logs,
        examples=["logs gsm8k", "logs gsm8k engine -f", "logs gsm8k trainer --rank 1 --attempt 2"],
    )
