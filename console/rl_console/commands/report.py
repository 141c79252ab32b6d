"""``report``: what a run has learned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rl_console.invocation import Invocation, OperatorNamespace, add
from rl_console.tools import OPERATOR_NAMESPACE


def report(
    invocation: Invocation,
    job: str,
    *,
    out: Annotated[Path, typer.Option(help="PNG file to write the reward curve to.")] = Path(
        "reward.png"
    ),
    operator_namespace: OperatorNamespace = OPERATOR_NAMESPACE,
) -> None:
    """Print what a job has learned so far.

    Progress, evaluations, reward curve and final model, at any time.

    Evaluations and curve come from the operator, as the dashboard's do. Where they cannot be read,
    or before there are any, the job's status says what is known.
    """
    from rl_console.actions.reporting import report_on

    report_on(invocation, job, out=out, operator_namespace=operator_namespace)


def register(app: typer.Typer) -> None:
    """Add the command."""
    add(
        app,
        report,
        output=True,
        examples=["report gsm8k -n research --out gsm8k.png", "report gsm8k -o json"],
    )
