"""Work folders for builds, named after the process that uses them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from rl_local.layout import Layout
from rl_local.system import teardown


@contextlib.contextmanager
def folder(layout: Layout, name: str) -> Iterator[Path]:
    """An empty folder that is removed with its contents when the block ends."""
    path = layout.scratch / f"{name}.{os.getpid()}"
    teardown.remove_tree(path)
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        teardown.remove_tree(path)


def remove_stale(layout: Layout) -> None:
    """Remove the folders of ended processes; folders of running ones stay."""
    for path in layout.scratch.glob("*"):
        owner = path.suffix.removeprefix(".")
        if not (owner.isdigit() and Path("/proc", owner).exists()):
            teardown.remove_tree(path)
