"""Displays of a job: a live table on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rl_console import output
from rl_console.output import Column
from rl_console.view import Snapshot, count, duration, fields, line

LINE_SECONDS = 5.0
POOLS = (
    Column(heading="POOL"),
    *(
        Column(heading=heading, right=True)
        for heading in ("DESIRED", "READY", "SERVING", "POLICY", "LAG")
    ),
)
BAR_WIDTH = 40


class LineDisplay:
    """One line every few seconds, and at once when the phase changes."""

    def __init__(self, console: Console, *, before: float = 0.0) -> None:
        """Print to ``console``; times shown start at ``before`` seconds."""
        self._console = console
        self._before = before
        self._printed_at: float | None = None
        self._phase = ""

    def show(self, snapshot: Snapshot, *, elapsed: float) -> None:
        """Print the job's line if the phase changed or the interval is over."""
        phase = snapshot.job.status.phase
        if phase != self._phase or self._due(elapsed):
            self._phase = phase
            self._print(line(snapshot), elapsed)

    def note(self, text: str, *, elapsed: float) -> None:
        """Print a remark if the interval is over."""
        if self._due(elapsed):
            self._print(text, elapsed)

    def _due(self, elapsed: float) -> bool:
        return self._printed_at is None or elapsed - self._printed_at >= LINE_SECONDS

    def _print(self, text: str, elapsed: float) -> None:
        self._printed_at = elapsed
        seconds = self._before + elapsed
        self._console.print(f"[{seconds:6.1f} s] {text}", markup=False, soft_wrap=True)


class LiveDisplay:
    """A table that is redrawn in place."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, snapshot: Snapshot, *, elapsed: float) -> None:
        """Redraw the table."""
        self._live.update(table(snapshot, elapsed=elapsed), refresh=True)

    def note(self, text: str, *, elapsed: float) -> None:
        """Show a remark instead of the table until the next successful read."""
        self._live.update(Text(f"{duration(elapsed)}: {text}"), refresh=True)


@contextmanager
def display(console: Console, *, before: float = 0.0) -> Iterator[LineDisplay | LiveDisplay]:
    """A live display for a terminal, else a line display; times start at ``before`` seconds.

    The last table of a live display stays on the screen.
    """
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield LiveDisplay(live)
    else:
        yield LineDisplay(console, before=before)


def table(snapshot: Snapshot, *, elapsed: float) -> Group:
    """The job's progress bar, its fields and a row for each pool."""
    job = snapshot.job
    heading = Text(f"RLJob {job.namespace}/{job.name}, {duration(elapsed)}", style="bold")
    progress = job.status.progress
    bar = ProgressBar(total=max(progress.steps, 1), completed=progress.step, width=BAR_WIDTH)
    facts = Table.grid(padding=(0, 2))
    for label, value in fields(snapshot):
        facts.add_row(Text(label, style="dim"), Text(value))
    return Group(heading, bar, facts, _pools(snapshot))


def _pools(snapshot: Snapshot) -> Text:
    """A row for each pool; on a narrow terminal its end goes on in the next line, uncut."""
    rows = []
    for pool in snapshot.pools:
        status = pool.status
        numbers = (pool.replicas, status.ready, status.serving, status.version, status.lag)
        rows.append((pool.name, *map(count, numbers)))
    return Text(output.table(POOLS, rows) if rows else "")
