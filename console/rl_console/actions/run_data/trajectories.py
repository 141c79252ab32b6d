"""Shows trajectories: those that meet conditions, or one whole."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from rl_console.actions.run_data.trajectory_table import found_trajectories, parse_steps
from rl_console.actions.run_data.trajectory_text import one_trajectory
from rl_console.actions.run_data.viewing import viewed
from rl_console.errors import UsageError
from rl_console.invocation import Invocation
from rl_console.output import Output, show_data
from rl_contracts.documents.rollout import StopReason
from rl_contracts.queries.messages import SearchQuery


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
        try:
            return SearchQuery(
                first=first,
                last=last,
                text=self.text,
                tool=self.tool,
                reward_min=self.reward_min,
                reward_max=self.reward_max,
                stop_reason=StopReason(self.stopped_by) if self.stopped_by else None,
                errors=self.errors,
            )
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            raise UsageError(f"--{problem['loc'][0]}: {problem['msg']}") from error


def show_trajectories(
    invocation: Invocation,
    job: str,
    conditions: Conditions,
    *,
    trajectory: str,
    most: int,
    seconds: float,
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
        most: rows of the table.
        seconds: that a search may take.
        tokens: list the tokens of the one that is named.
        first_token: of that list.
        operator_namespace: of the operator.
    """
    query, output = conditions.query(), invocation.output
    _refuse_without_effect(conditions, trajectory, tokens=tokens or first_token > 0)
    with viewed(invocation, job, operator_namespace=operator_namespace) as data:
        if trajectory:
            step = query.last if query.first == query.last and query.last else None
            shown = one_trajectory(
                data,
                trajectory,
                step=step,
                tokens=tokens,
                first_token=first_token,
                wide=output is Output.WIDE,
            )
        else:
            shown = found_trajectories(data, query, most=most, seconds=seconds, output=output)
    show_data(shown, output)


def _refuse_without_effect(conditions: Conditions, trajectory: str, *, tokens: bool) -> None:
    if tokens and not trajectory:
        raise UsageError(
            "--tokens and --first-token show one trajectory",
            remedy="Name it after the job, as the list without them has it",
        )
    if trajectory and conditions != Conditions(steps=conditions.steps):
        raise UsageError(
            "a trajectory is named, so there is nothing to search for",
            remedy="Leave its name away, or the conditions",
        )
