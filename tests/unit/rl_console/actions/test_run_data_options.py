"""Options of ``trajectories`` and ``policies`` that would have no effect are refused."""

from __future__ import annotations

from typing import Any

import pytest

from rl_console.actions.run_data.trajectories import Conditions, show_trajectories
from rl_console.commands.run_data import policies
from rl_console.errors import UsageError
from rl_console.invocation import Invocation
from rl_console.output import Output


def shown(
    conditions: Conditions,
    trajectory: str,
    *,
    tokens: bool = False,
    first_token: int = 0,
    output: Output = Output.TABLE,
    most: int | None = None,
    seconds: float | None = None,
) -> None:
    show_trajectories(
        Invocation(output=output),
        "sums",
        conditions,
        trajectory=trajectory,
        most=most,
        seconds=seconds,
        tokens=tokens,
        first_token=first_token,
        operator_namespace="rl-system",
    )


@pytest.mark.parametrize(
    ("conditions", "trajectory", "tokens", "message"),
    [
        (Conditions(text="x" * 201), "", False, "text cannot be asked for: .* 200 characters"),
        (Conditions(stopped_by="magic"), "", False, "--stopped-by magic: there is no such reason"),
        (Conditions(steps="ten"), "", False, "'ten' is no range of steps"),
        (Conditions(), "", True, "--tokens and --first-token show one trajectory"),
        (Conditions(tool="calculator"), "t.1.0", False, "there is nothing to search for"),
        (Conditions(steps="3-5"), "t.1.0", False, "--steps 3-5 names no single step"),
        (Conditions(steps="3-"), "t.1.0", False, "--steps 3- names no single step"),
    ],
)
def test_what_has_no_effect_or_no_meaning_is_refused(
    conditions: Conditions, trajectory: str, *, tokens: bool, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        shown(conditions, trajectory, tokens=tokens)


def test_a_first_token_needs_a_list_of_tokens() -> None:
    for output in (Output.TABLE, Output.WIDE, Output.NAME):
        with pytest.raises(UsageError, match="--first-token 40: no tokens are listed"):
            shown(Conditions(), "t.1.0", first_token=40, output=output)


def test_a_version_takes_no_option_of_the_list() -> None:
    for before, limit in ((9, None), (None, 5)):
        with pytest.raises(UsageError, match="--before and --limit are for the list"):
            policies(Invocation(), "sums", 3, before=before, limit=limit)


@pytest.mark.parametrize("bound", [{"most": 5}, {"seconds": 5.0}])
def test_a_trajectory_that_is_named_takes_no_bound_of_a_search(bound: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="nothing to search for"):
        shown(Conditions(), "t.1.0", **bound)
