"""Trajectories as a table: those that a search found, and the members of a batch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rl_console.actions.run_data.viewing import short, values_of
from rl_console.errors import UsageError
from rl_console.figures import duration, number
from rl_console.output import Column, Output, Shown, table, width
from rl_console.plain_text import plain_line
from rl_console.queries.run_data import Found, RunData
from rl_contracts.queries.answers import RolloutRow
from rl_contracts.queries.kinds import SearchQuery

STEPS = re.compile(r"^(\d{1,9})(?:(-)(\d{1,9})?)?$")
TEXT_CHARS = 120
"""Of a text in a table, also in a pipe; the trajectory alone shows all of it."""
COLUMNS = (
    Column(heading="TRAJECTORY"),
    Column(heading="STEP", right=True),
    Column(heading="REWARD", right=True),
    Column(heading="ADVANTAGE", right=True),
    Column(heading="STOP"),
    Column(heading="TURNS", right=True, wide=True),
    Column(heading="CALLS", right=True, wide=True),
    Column(heading="VERSIONS", wide=True),
    Column(heading="TOOK", right=True, wide=True),
    Column(heading="SAMPLER", wide=True),
    Column(heading="TEXT", text=True),
)


def parse_steps(written: str) -> tuple[int, int | None]:
    """First and last step of ``12``, ``10-20`` or ``10-``; an empty text names all.

    Raises:
        UsageError: it is no such range.
    """
    if not written:
        return 0, None
    match = STEPS.match(written.strip())
    if match is None:
        raise UsageError(
            f"{written!r} is no range of steps", remedy="Write --steps 12, 10-20 or 10-"
        )
    first, through, last = match.groups()
    return int(first), int(last) if last else (None if through else int(first))


def found_trajectories(
    data: RunData, query: SearchQuery, *, most: int, seconds: float, output: Output
) -> Shown:
    """The trajectories that a search finds.

    Args:
        data: of the run.
        query: conditions.
        most: trajectories of the table.
        seconds: that the search may take.
        output: table or wide.
    """
    search = data.trajectories(query, most=most, seconds=seconds)
    run, shown = data.run, search.hits
    return Shown(
        text=trajectory_table(shown, run, output=output) if shown else "",
        values=_values(search, shown),
        names=[f"rollout/{short(each.id, run)}" for each in shown],
        empty=f"No trajectory of {search.read} meets the conditions; trained ones are searched.",
        notes=list(_notes(search, query)),
    )


def trajectory_table(rows: Sequence[RolloutRow], run: str, *, output: Output) -> str:
    """A row for each trajectory."""
    cells = [_cells(each, run) for each in rows]
    return table(COLUMNS, cells, wide=output is Output.WIDE, width=width())


def _cells(row: RolloutRow, run: str) -> Sequence[str]:
    full_text = f"{row.error.kind}: {row.error.message}" if row.error else row.text
    text = plain_line(full_text[: 2 * TEXT_CHARS])
    return (
        short(row.id, run),
        "–" if row.step is None else str(row.step),
        number(row.reward),
        "greedy" if row.greedy else number(row.advantage),
        row.stop_reason,
        str(row.turns),
        str(row.calls),
        ",".join(map(str, row.versions)),
        duration(row.seconds),
        row.sampler,
        text if len(text) <= TEXT_CHARS else f"{text[: TEXT_CHARS - 1]}…",
    )


def _values(search: Found, shown: Sequence[RolloutRow]) -> dict[str, object]:
    return {
        "hits": [values_of(each) for each in shown],
        "read": search.read,
        "next_last": search.next_last,
        "next_skip": search.next_skip,
    }


def _notes(search: Found, query: SearchQuery) -> Iterator[str]:
    if search.next_last is None:
        return
    skip = f" --skip {search.next_skip}" if search.next_skip else ""
    yield (
        f"{search.read} were looked at; earlier ones were not. Go on with "
        f"--steps {max(1, query.first)}-{search.next_last}{skip}"
    )
