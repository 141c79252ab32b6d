"""Prints jobs as they change."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from rl_console.actions.job_table import job_listing
from rl_console.cluster.kube import Cluster
from rl_console.errors import ClusterUnavailableError
from rl_console.output import Listing, Output, document, table, width
from rl_console.plain_text import plain_line

SILENT_SECONDS = 120.0
"""How long the API server may not answer."""
TABLES = (Output.TABLE, Output.WIDE)
UNSEEN = ("resourceVersion", "managedFields")
"""Parts of an object's metadata that change with everything that is written, the same value too."""


def watch_jobs(
    cluster: Cluster,
    namespace: str,
    *,
    job: str | None,
    interval: float,
    seconds: float | None,
    output: Output,
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> None:
    """Print each job and each later change of it, until the time is over.

    A table has a new line where a column that it shows has changed, JSON and YAML where anything
    has. Jobs of a list that are gone are named on standard error.

    Args:
        cluster: to read from.
        namespace: of the jobs; empty: all.
        job: only this job; None: all of the namespace.
        interval: seconds between two reads.
        seconds: until the end; None: never.
        output: a table, or one JSON object a line.
        sleep: waits.
        monotonic: a clock.

    Raises:
        NotFoundError: the job does not exist, or not any more.
        ClusterUnavailableError: no answer for SILENT_SECONDS, or none at all.
    """
    answered = monotonic()
    ends = math.inf if seconds is None else answered + seconds
    changes: _Changes | None = None
    while True:
        asked = cluster.within(ends - monotonic())
        try:
            jobs = [asked.raw_job(namespace, job)] if job is not None else asked.raw_jobs(namespace)
            answered = monotonic()
            changes = changes or _Changes(output)
            changes.show(job_listing(jobs, namespace=namespace))
        except ClusterUnavailableError:
            if changes is None or monotonic() - answered > SILENT_SECONDS:
                raise
        left = ends - monotonic()
        if left <= 0:
            return
        sleep(min(interval, left))


class _Changes:
    """Prints what differs from what was printed last."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._shown: dict[str, object] = {}
        self._names: dict[str, str] = {}
        self._headed = False

    def show(self, listing: Listing) -> None:
        """Print the jobs that are new or have changed, and name those that are gone."""
        changed = []
        for row, written in zip(listing.rows, listing.objects, strict=True):
            metadata = written["metadata"]
            seen, uid = self._seen(listing, row, written), metadata["uid"]
            if self._shown.get(uid) != seen:
                self._shown[uid] = seen
                self._names[uid] = f"{metadata['namespace']}/{metadata['name']}"
                changed.append((row, written))
        self._print_gone({each["metadata"]["uid"] for each in listing.objects})
        if self._output in TABLES:
            self._print_rows(listing, [row for row, _ in changed])
            return
        for _, written in changed:
            print(self._document(listing, written), flush=True)

    def _seen(self, listing: Listing, row: Sequence[str], written: Mapping[str, Any]) -> object:
        """What a change is judged by: the columns that are shown but the age, or the object."""
        if self._output not in TABLES:
            metadata = written["metadata"]
            kept = {key: value for key, value in metadata.items() if key not in UNSEEN}
            return {**written, "metadata": kept}
        return tuple(
            cell
            for cell, column in zip(row, listing.columns, strict=True)
            if column.heading != "AGE" and (self._output is Output.WIDE or not column.wide)
        )

    def _print_gone(self, there: Collection[str]) -> None:
        for uid in self._shown.keys() - there:
            del self._shown[uid]
            print(plain_line(f"RLJob {self._names.pop(uid)} is gone"), file=sys.stderr)

    def _document(self, listing: Listing, written: Mapping[str, Any]) -> str:
        if self._output is Output.JSON:
            return json.dumps(written)
        if self._output is Output.NAME:
            return f"{listing.kind}/{written['metadata']['name']}"
        return f"---\n{document(written, self._output)}"

    def _print_rows(self, listing: Listing, rows: Sequence[Sequence[str]]) -> None:
        if not rows:
            return
        wide = self._output is Output.WIDE
        text = table(listing.columns, rows, wide=wide, width=width())
        print(text.partition("\n")[2] if self._headed else text, flush=True)
        self._headed = True
