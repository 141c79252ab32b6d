"""Event files for TensorBoard.

The bucket takes whole objects alone, so that each save ends a file and the next entry begins
another; TensorBoard reads all files of a folder, in the order of their names.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter

from rl_trainer.tracking.entries import Entry, Shown
from rl_trainer.tracking.tracker import TrackerError


class TensorBoard:
    """Writes scalars, histograms and sample texts as event files."""

    name = "TensorBoard"
    any_order = False

    def __init__(self, folder: Path) -> None:
        """Write below ``folder``."""
        self.folder: Path | None = folder
        self._writer: SummaryWriter | None = None
        self._files = 0

    def write(self, entries: Sequence[Entry]) -> None:
        """Implement ``Tracker``."""
        try:
            for entry in entries:
                _write(self._open(), entry)
        except OSError as error:
            raise TrackerError(f"event file: {error}") from error

    def save(self) -> None:
        """Implement ``Tracker``."""
        self.close()

    def close(self) -> None:
        """Implement ``Tracker``."""
        try:
            if self._writer is not None:
                self._writer.close()
        except OSError as error:
            raise TrackerError(f"event file: {error}") from error
        self._writer = None

    def _open(self) -> SummaryWriter:
        if self._writer is None:
            self._files += 1
            suffix = f".{self._files:06d}"
            self._writer = SummaryWriter(str(self.folder), filename_suffix=suffix)
        return self._writer


def _write(writer: SummaryWriter, entry: Entry) -> None:
    at = {"global_step": entry.step, "walltime": entry.time}
    for name, value in entry.scalars.items():
        writer.add_scalar(name, value, **at)
    for name, counts in entry.counts.items():
        if counts:
            writer.add_histogram_raw(name, **_histogram(counts), **at)
    for number, sample in enumerate(entry.samples):
        writer.add_text(f"samples/{number}", _text(sample), **at)


def _histogram(counts: Mapping[str, int]) -> dict[str, Any]:
    """A histogram with a bucket for each whole number seen, and its moments."""
    seen = sorted((int(value), count) for value, count in counts.items())
    return {
        "min": seen[0][0],
        "max": seen[-1][0],
        "num": sum(count for _, count in seen),
        "sum": sum(value * count for value, count in seen),
        "sum_squares": sum(value * value * count for value, count in seen),
        "bucket_limits": [value + 0.5 for value, _ in seen],
        "bucket_counts": [count for _, count in seen],
    }


def _text(sample: Shown) -> str:
    """Markdown in which the rollout's own text is a block of code."""
    head = f"`{sample.rollout}`: reward {sample.reward:g}, {sample.stop_reason}"
    return f"{head}\n\n{textwrap.indent(sample.text, '    ', lambda _: True)}"
