"""``suspend``, ``resume``, ``stop`` and ``retry``: whether a job works."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rl_console.invocation import Invocation, add

Wait = Annotated[
    float | None, typer.Option(min=0, help="Wait until it is done, at most this many seconds.")
]


def suspend(invocation: Invocation, job: str, *, wait: Wait = None) -> None:
    """Stop a job's pods once their step is durable.

    `resume` lets the run go on from there.
    """
    from rl_console.actions.suspension import set_suspended

    cluster = invocation.cluster()
    print(set_suspended(cluster, cluster.default_namespace, job, suspended=True, wait=wait))


def resume(invocation: Invocation, job: str, *, wait: Wait = None) -> None:
    """Let a suspended job go on from where it was."""
    from rl_console.actions.suspension import set_suspended

    cluster = invocation.cluster()
    print(set_suspended(cluster, cluster.default_namespace, job, suspended=False, wait=wait))


def stop(
    invocation: Invocation,
    job: str,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    wait: Wait = None,
) -> None:
    """End a job's run for good, before its last step.

    The trainer makes its step durable, all pods stop, and the job gets the phase Stopped. This
    cannot be taken back; `retry` continues the run as a new job. The data stay.
    """
    from rl_console.actions.suspension import refuse_ended, stop_job

    cluster = invocation.cluster()
    namespace = cluster.default_namespace
    refuse_ended(cluster, cluster.job(namespace, job), doing=f"stopping RLJob {namespace}/{job}")
    if not yes:
        typer.confirm(f"End the run of RLJob {namespace}/{job} for good?", abort=True, err=True)
    print(stop_job(cluster, namespace, job, wait=wait))


def retry(
    invocation: Invocation,
    job: str,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    save: Annotated[
        Path | None, typer.Option(help="File for the new manifest. Default: JOB-retry.yaml.")
    ] = None,
) -> None:
    """Continue the run of a failed or stopped job as a new job.

    The job is deleted and created again with the run's ID, so that it goes on from the last
    checkpoint. The new manifest is kept in a file.
    """
    from rl_console.actions.retry import (
        replace_job,
        replacement,
        require_creatable,
        write_manifest,
    )

    cluster = invocation.cluster()
    namespace = cluster.default_namespace
    raw = cluster.raw_job(namespace, job)
    manifest = replacement(cluster, raw)
    require_creatable(cluster, manifest)
    if not yes:
        typer.confirm(
            f"Delete RLJob {namespace}/{job} and create it again with runId "
            f"{manifest['spec']['runId']}?",
            abort=True,
            err=True,
        )
    file = save or Path(f"{job}-retry.yaml")
    write_manifest(manifest, file)
    print(f"note: {file} has the manifest of the new job", file=sys.stderr)
    replace_job(cluster, raw, manifest, saved=file)
    print(f"rljob.rl-operator.io/{job} continues run {manifest['spec']['runId']}")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add(app, suspend, examples=["suspend gsm8k", "suspend gsm8k --wait 300"])
    add(app, resume, examples=["resume gsm8k"])
    add(app, stop, examples=["stop gsm8k", "stop gsm8k --yes --wait 300"])
    add(app, retry, examples=["retry gsm8k", "retry gsm8k --yes --save gsm8k-again.yaml"])
