"""What the address of a page names: a job, several runs, and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request

from rl_console.dashboard.panels import MOST_COMPARED
from rl_console.errors import UsageError


def place(request: Request) -> tuple[str, str]:
    """Namespace and name of the job."""
    return request.path_params["namespace"], request.path_params["job"]


def chosen(request: Request) -> list[tuple[str, str]]:
    """Namespace and job of each run that is to be compared.

    Raises:
        UsageError: they are too many, or one is not NAMESPACE/JOB.
    """
    written: Sequence[str] = request.query_params.getlist("run")
    named = [tuple(text.split("/")) for text in dict.fromkeys(written)]
    if len(named) > MOST_COMPARED or any(len(each) != 2 for each in named):
        raise UsageError(
            "the runs cannot be compared",
            remedy=f"Name at most {MOST_COMPARED} as run=NAMESPACE/JOB",
        )
    return [(each[0], each[1]) for each in named]


def integer(request: Request, name: str, default: Any) -> Any:
    """A whole number, or the default where there is none; the query's model checks its range.

    Raises:
        UsageError: something else is written there.
    """
    written = request.query_params.get(name, "").strip()
    if not written:
        return default
    try:
        return int(written[:12])
    except ValueError as error:
        raise UsageError(f"{name} is no whole number") from error


def real(request: Request, name: str) -> float | None:
    """A number; None where there is none.

    Raises:
        UsageError: something else is written there.
    """
    written = request.query_params.get(name, "").strip()
    try:
        return float(written) if written else None
    except ValueError as error:
        raise UsageError(f"{name} is no number") from error
