"""``trajectories``, ``batch`` and ``policies``: the data of a run."""

from __future__ import annotations

from typing import Annotated

import typer

from rl_console.errors import UsageError
from rl_console.invocation import Invocation, OperatorNamespace, add
from rl_console.tools import OPERATOR_NAMESPACE

Limit = Annotated[
    int | None, typer.Option(min=1, max=10_000, help="Most rows of the table. Default: 20.")
]


def trajectories(
    invocation: Invocation,
    job: str,
    trajectory: Annotated[
        str, typer.Argument(help="Show this one whole, e.g. train.00000012.1.0.")
    ] = "",
    *,
    steps: Annotated[
        str,
        typer.Option(
            help="Only those of these training steps: 12, 10-20, or 10- for all from 10 on."
        ),
    ] = "",
    reward_min: Annotated[float | None, typer.Option(help="Least reward.")] = None,
    reward_max: Annotated[float | None, typer.Option(help="Largest reward.")] = None,
    tool: Annotated[str, typer.Option(help="Part of the name of a tool that was called.")] = "",
    text: Annotated[
        str, typer.Option(help="Text in a response; upper and lower case count the same.")
    ] = "",
    errors: Annotated[
        bool, typer.Option("--errors", help="Only those in which a turn or a tool failed.")
    ] = False,
    stopped_by: Annotated[
        str, typer.Option(help="Only those that ended for this reason, e.g. length.")
    ] = "",
    skip: Annotated[
        int,
        typer.Option(
            min=0,
            help="Go on with a search that stopped within a step: leave out this many trajectories "
            "of the newest step of --steps. The note below a search says both numbers.",
        ),
    ] = 0,
    limit: Limit = None,
    timeout: Annotated[
        float | None, typer.Option(min=1, help="Seconds that a search may take. Default: 60.")
    ] = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="With TRAJECTORY: list its tokens.")
    ] = False,
    first_token: Annotated[
        int, typer.Option(min=0, help="With --tokens: number of the first token to list.")
    ] = 0,
    operator_namespace: OperatorNamespace = OPERATOR_NAMESPACE,
) -> None:
    """Search trained trajectories of a job, or show one whole.

    A trajectory alone comes with its prompt, turns, tool calls, rewards, policy versions, the batch
    that trained it or why there is none, and with --tokens each token.
    """
    from rl_console.actions.run_data.trajectories import Conditions, show_trajectories

    conditions = Conditions(
        steps=steps,
        reward_min=reward_min,
        reward_max=reward_max,
        tool=tool,
        text=text,
        errors=errors,
        stopped_by=stopped_by,
        skip=skip,
    )
    show_trajectories(
        invocation,
        job,
        conditions,
        trajectory=trajectory,
        most=limit,
        seconds=timeout,
        tokens=tokens,
        first_token=first_token,
        operator_namespace=operator_namespace,
    )


def batch(
    invocation: Invocation,
    job: str,
    step: Annotated[int, typer.Argument(min=1, help="Training step.")],
    *,
    operator_namespace: OperatorNamespace = OPERATOR_NAMESPACE,
) -> None:
    """Show what a step was trained with.

    Its trajectories with their advantages, its digest, and the groups that were dropped and why.
    """
    from rl_console.actions.run_data.batch_text import batch_of_step
    from rl_console.actions.run_data.viewing import viewed
    from rl_console.output import show_data

    with viewed(invocation, job, operator_namespace=operator_namespace) as data:
        shown = batch_of_step(data, step, output=invocation.output)
    show_data(shown, invocation.output)


def policies(
    invocation: Invocation,
    job: str,
    version: Annotated[int | None, typer.Argument(min=1, help="Show this version.")] = None,
    other: Annotated[int | None, typer.Argument(min=1, help="Compare it with this one.")] = None,
    *,
    before: Annotated[int | None, typer.Option(min=1, help="Only versions below this one.")] = None,
    limit: Limit = None,
    operator_namespace: OperatorNamespace = OPERATOR_NAMESPACE,
) -> None:
    """Show published policy versions and who serves them.

    With one VERSION: what was learned with it. With two: both side by side.
    """
    from rl_console.actions.run_data.policy_table import (
        ROWS,
        compared_policies,
        one_policy,
        policy_listing,
    )
    from rl_console.actions.run_data.viewing import viewed
    from rl_console.output import Output, show_data

    if version is not None and (before is not None or limit is not None):
        raise UsageError(
            "--before and --limit are for the list of versions",
            remedy="Leave out VERSION, or these options",
        )
    wide = invocation.output is Output.WIDE
    with viewed(invocation, job, operator_namespace=operator_namespace) as data:
        if version is None:
            shown = policy_listing(data, before=before, most=limit or ROWS, wide=wide)
        elif other is None:
            shown = one_policy(data, version)
        else:
            shown = compared_policies(data, version, other)
    show_data(shown, invocation.output)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add(
        app,
        trajectories,
        output=True,
        examples=[
            "trajectories gsm8k --steps 10-20 --reward-max 0 --tool calculator",
            "trajectories gsm8k train.00000012.1.0 --tokens",
        ],
    )
    add(app, batch, output=True, examples=["batch gsm8k 12", "batch gsm8k 12 -o json"])
    add(app, policies, output=True, examples=["policies gsm8k -o wide", "policies gsm8k 10 12"])
