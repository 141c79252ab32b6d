"""Prints jobs as they change."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rl_console.actions.job_table import job_listing
from rl_console.errors import ClusterUnavailableError
from rl_console.kube import Cluster
from rl_console.output import Listing, Output, document, table, width

SILENT_SECONDS = 120.0
"""How long the API server may not answer."""


def watch_jobs(
    cluster: Cluster,
    namespace: str,
    *,
    job: str,
    interval: float,
    seconds: float | None,
    output: Output,
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> None:
    """Print each job and each later change of it, until the time is over.

    Args:
        cluster: to read from.
        namespace: of the jobs; empty: all.
        job: only this job; empty: all of the namespace.
        interval: seconds between two reads.
        seconds: until the end; None: never.
        output: a table, or one JSON object a line.
        sleep: waits.
        monotonic: a clock.

    Raises:
        NotFoundError: the job does not exist, or not any more.
        ClusterUnavailableError: no answer for SILENT_SECONDS, or none at all.
    """
    started = answered = monotonic()
    changes: _Changes | None = None
    while True:
        try:
            jobs = [cluster.raw_job(namespace, job)] if job else cluster.raw_jobs(namespace)
            answered = monotonic()
            changes = changes or _Changes(output)
            changes.show(job_listing(jobs, namespace=namespace))
        except ClusterUnavailableError:
            if changes is None or monotonic() - answered > SILENT_SECONDS:
                raise
        if seconds is not None and monotonic() - started >= seconds:
            return
        sleep(interval)


class _Changes:
    """Prints what differs from what was printed last."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._shown: dict[str, object] = {}
        self._headed = False

    def show(self, listing: Listing) -> None:
        """Print the jobs that are new or have changed; another age is no change."""
        ages = [index for index, column in enumerate(listing.columns) if column.heading == "AGE"]
        changed = []
        for row, written in zip(listing.rows, listing.objects, strict=True):
            seen = tuple(cell for index, cell in enumerate(row) if index not in ages)
            uid = written["metadata"]["uid"]
            if self._shown.get(uid) != seen:
                self._shown[uid] = seen
                changed.append((row, written))
        if self._output in (Output.TABLE, Output.WIDE):
            self._print_rows(listing, [row for row, _ in changed])
            return
        for _, written in changed:
            print(self._document(listing, written), flush=True)

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
