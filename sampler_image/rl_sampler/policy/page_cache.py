"""Reads a staged policy into the node's memory, so that the engine's load in its pause is a copy.

The engine maps the files and copies out of them what each of its processes needs. Pages that the
kernel has dropped since they were written would be read from the disk in the pause.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from rl_sampler.policy.fetch import StagingCancelledError

READ_FROM_BYTES = 1 << 30
"""Smaller policies are not read: they were written a moment ago, and are read in no time."""
SPAN_BYTES = 256 << 20
CHUNK_BYTES = 16 << 20
THREADS = 4


def read(folder: Path, cancelled: threading.Event) -> None:
    """Read all weights in a folder from beginning to end; the kernel keeps the pages while it can.

    Raises:
        StagingCancelledError: ``cancelled`` was set.
    """
    spans = list(_spans(sorted(folder.glob("*.safetensors"))))
    with ThreadPoolExecutor(THREADS, thread_name_prefix="page-cache") as threads:
        for _ in threads.map(partial(_read_span, cancelled), spans):
            pass


def _spans(files: list[Path]) -> Iterator[tuple[Path, int]]:
    for path in files:
        for offset in range(0, path.stat().st_size, SPAN_BYTES):
            yield path, offset


def _read_span(cancelled: threading.Event, span: tuple[Path, int]) -> None:
    path, offset = span
    buffer, end = bytearray(CHUNK_BYTES), offset + SPAN_BYTES
    with path.open("rb", buffering=0) as file:
        while offset < end and (count := os.preadv(file.fileno(), [buffer], offset)):
            if cancelled.is_set():
                raise StagingCancelledError(f"reading {path.name} was cancelled")
            offset += count
