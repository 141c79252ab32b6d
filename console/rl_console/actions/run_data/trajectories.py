"""Shows trajectories: those that meet conditions, or one whole."""

from __future__ import annotations

from dataclasses import dataclass

from rl_console.actions.run_data.trajectory_table import found_trajectories, parse_steps
from rl_console.actions.run_data.trajectory_text import one_trajectory
from rl_console.actions.run_data.viewing import viewed
from rl_console.errors import UsageError
from rl_console.invocation import Invocation
from rl_console.output import Output, show_data
from rl_console.queries.source import checked
from rl_contracts.documents.rollout import StopReason
from rl_contracts.queries.kinds import SearchQuery

ROWS = 20
"""Of the table, unless another number is asked for."""
SEARCH_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What a person searches for, as options have it."""

    steps: str = ""
    reward_min: float | None = None
    reward_max: float | None = None
    tool: str = ""
    text: str = ""
    errors: bool = False
    stopped_by: str = ""
    skip: int = 0

    def query(self) -> SearchQuery:
        """The question.

        Raises:
            UsageError: an option has a value that no trajectory has.
        """
        reasons = ", ".join(StopReason)
        if self.stopped_by and self.stopped_by not in list(StopReason):
            raise UsageError(
                f"--stopped-by {self.stopped_by}: there is no such reason",
                remedy=f"Choose one of {reasons}",
            )
        first, last = parse_steps(self.steps)
        if self.skip and last is None:
            raise UsageError(
                f"--skip {self.skip} needs the step whose first trajectories are left out",
                remedy="Name it as the last one of --steps, as the note of a search has it",
            )
        with checked():
            return SearchQuery(
                first=first,
                last=last,
                text=self.text,
                tool=self.tool,
                reward_min=self.reward_min,
                reward_max=self.reward_max,
                stop_reason=StopReason(self.stopped_by) if self.stopped_by else None,
                errors=self.errors,
                skip=self.skip,
            )


def show_trajectories(
    invocation: Invocation,
    job: str,
    conditions: Conditions,
    *,
    trajectory: str,
    most: int | None,
    seconds: float | None,
    tokens: bool,
    first_token: int,
    operator_namespace: str,
) -> None:
    """Print the trajectories that meet conditions, or the one that is named.

    Args:
        invocation: cluster, namespace and form of the output.
        job: whose run.
        conditions: of a search.
        trajectory: id of the one to show whole; empty: search.
        most: rows of the table; None: ROWS.
        seconds: that a search may take; None: SEARCH_SECONDS.
        tokens: list the tokens of the one that is named.
        first_token: of that list.
        operator_namespace: of the operator.
    """
    query, output = conditions.query(), invocation.output
    if trajectory:
        _refuse_search(conditions, query, bounded=most is not None or seconds is not None)
        if first_token > 0 and not (tokens or output in (Output.JSON, Output.YAML)):
            raise UsageError(
                f"--first-token {first_token}: no tokens are listed", remedy="Add --tokens"
            )
    elif tokens or first_token > 0:
        raise UsageError(
            "--tokens and --first-token show one trajectory",
            remedy="Name it after the job, as the list without them has it",
        )
    with viewed(invocation, job, operator_namespace=operator_namespace) as data:
        if trajectory:
            shown = one_trajectory(
                data,
                trajectory,
                step=query.last,
                tokens=tokens,
                first_token=first_token,
                wide=output is Output.WIDE,
            )
        else:
            shown = found_trajectories(
                data,
                query,
                most=ROWS if most is None else most,
                seconds=SEARCH_SECONDS if seconds is None else seconds,
                output=output,
            )
    show_data(shown, output)


def _refuse_search(conditions: Conditions, query: SearchQuery, *, bounded: bool) -> None:
    """Refuse what has no effect where a trajectory is named; its step alone helps to find it."""
    if bounded or conditions != Conditions(steps=conditions.steps):
        raise UsageError(
            "a trajectory is named, so there is nothing to search for",
            remedy="Leave out its name, or the conditions, --limit and --timeout",
        )
    if conditions.steps and query.first != query.last:
        raise UsageError(
            f"--steps {conditions.steps} names no single step",
            remedy="Beside a trajectory's name write the step that trained it, e.g. --steps 12",
        )
