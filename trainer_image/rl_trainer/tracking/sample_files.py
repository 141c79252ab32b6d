"""Rollouts to read, a file of JSON lines for each step."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from rl_trainer.tracking.entries import Entry
from rl_trainer.tracking.tracker import TrackerError


class SampleFiles:
    """Writes each step's samples to ``<step>.jsonl``."""

    name = "samples"
    any_order = False

    def __init__(self, folder: Path) -> None:
        """Write into ``folder``."""
        self.folder: Path | None = folder
        self._place = folder

    def write(self, entries: Sequence[Entry]) -> None:
        """Implement ``Tracker``."""
        try:
            self._place.mkdir(parents=True, exist_ok=True)
            for entry in entries:
                if entry.samples:
                    lines = [json.dumps(dataclasses.asdict(sample)) for sample in entry.samples]
                    path = self._place / f"{entry.step:08d}.jsonl"
                    path.write_text("".join(f"{line}\n" for line in lines))
        except OSError as error:
            raise TrackerError(f"file of samples: {error}") from error

    def save(self) -> None:
        """Do nothing: files are complete once written."""

    def close(self) -> None:
        """Implement ``Tracker``."""
