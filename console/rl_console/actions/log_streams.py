"""Streams logs of several containers to the screen."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from rl_console.actions.log_choice import Source
from rl_console.actions.log_lines import lines_of
from rl_console.errors import ConsoleError
from rl_console.kube import Cluster
from rl_console.plain_text import plain_line

MOST_STREAMS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """What to read of each container's log."""

    follow: bool = False
    tail: int | None = None
    """Last lines of each; None: all."""
    since_seconds: int | None = None
    previous: bool = False
    """The log of the container's previous run."""
    timestamps: bool = False


def print_logs(
    cluster: Cluster, namespace: str, sources: Sequence[Source], options: LogOptions
) -> None:
    """Print logs: one after the other, or with ``follow`` as their lines come.

    With more than one source each line begins with its pod and container.

    Raises:
        ConsoleError: a log cannot be read, of one source or of all.
    """
    printer = _Printer(labelled=len(sources) > 1)
    if not options.follow:
        for source in sources:
            printer.print(cluster, namespace, source, options)
        return
    threads = [
        threading.Thread(
            target=printer.print_or_note, args=(cluster, namespace, source, options), daemon=True
        )
        for source in sources
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(printer.errors) == len(sources):
        raise printer.errors[0]


class _Printer:
    def __init__(self, *, labelled: bool) -> None:
        self._labelled = labelled
        self._lock = threading.Lock()
        self.errors: list[ConsoleError] = []

    def print(self, cluster: Cluster, namespace: str, source: Source, options: LogOptions) -> None:
        chunks = cluster.log_chunks(
            namespace,
            source.pod,
            source.container,
            follow=options.follow,
            tail=options.tail,
            since_seconds=options.since_seconds,
            previous=options.previous,
            timestamps=options.timestamps,
        )
        label = f"[{source.label}] " if self._labelled else ""
        for line in lines_of(chunks):
            with self._lock:
                print(f"{label}{line}", flush=options.follow)

    def print_or_note(
        self, cluster: Cluster, namespace: str, source: Source, options: LogOptions
    ) -> None:
        try:
            self.print(cluster, namespace, source, options)
        except ConsoleError as error:
            with self._lock:
                self.errors.append(error)
                print(f"[{source.label}] {plain_line(str(error))}", file=sys.stderr)
