"""``doctor``: what a cluster and a namespace lack."""

from __future__ import annotations

import typer

from rl_console.invocation import Invocation, add


def doctor(invocation: Invocation) -> None:
    """Check the cluster and the namespace for faults.

    Each finding that is not good has its remedy. The exit code is 1 if there is a fault.
    """
    from rl_console.actions.doctoring import examine, listing_of
    from rl_console.actions.finding import FAULT
    from rl_console.output import show

    cluster = invocation.cluster()
    findings = list(examine(cluster, cluster.default_namespace))
    show(listing_of(findings), invocation.output)
    if any(finding.state == FAULT for finding in findings):
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the command."""
    add(app, doctor, output=True, examples=["doctor -n research", "doctor -o json"])
