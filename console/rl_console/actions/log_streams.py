"""Streams logs of several containers to the screen."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from rl_console.actions.log_choice import Source
from rl_console.actions.log_lines import lines_of
from rl_console.cluster.kube import Cluster
from rl_console.errors import ConsoleError
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

    With more than one source each line begins with its pod and container, and one that cannot be
    read, e.g. because it has not begun, is noted on standard error.

    Raises:
        ConsoleError: no log can be read.
        OSError: the output is closed or full.
    """
    printer = _Printer(labelled=len(sources) > 1)
    if options.follow:
        _follow(printer, cluster, namespace, sources, options)
    else:
        for source in sources:
            printer.print_or_note(cluster, namespace, source, options)
    if len(printer.errors) == len(sources):
        raise printer.errors[0]


def _follow(
    printer: _Printer,
    cluster: Cluster,
    namespace: str,
    sources: Sequence[Source],
    options: LogOptions,
) -> None:
    """Print all at once, until they end or one fails, e.g. since nobody reads the output."""
    ended = queue.SimpleQueue[BaseException | None]()

    def work(source: Source) -> None:
        failed: BaseException | None = None
        try:
            printer.print_or_note(cluster, namespace, source, options)
        except BaseException as error:  # noqa: BLE001 - raised again by the main thread
            failed = error
        ended.put(failed)

    for source in sources:
        threading.Thread(target=work, args=(source,), daemon=True).start()
    for _ in sources:
        if (failed := ended.get()) is not None:
            printer.stop()
            raise failed


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
                if self._labelled:
                    print(f"[{source.label}] {plain_line(str(error))}", file=sys.stderr)

    def stop(self) -> None:
        """Print nothing more: Python must not end while a thread prints."""
        self._lock.acquire()
