"""The interface of a tracker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rl_contracts.errors import RLError
from rl_trainer.tracking.entries import Entry


class TrackerError(RLError):
    """A tracker did not take its entries; trying again later may help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """The attempt as trackers name it. Each attempt hands over all steps from the first."""

    project: str
    job: str
    run: str
    epoch: int
    settings: dict[str, Any]
    """Of the manifest; no secrets."""
    entity: str | None = None
    """W&B's team or user."""
    wanted_name: str | None = None
    """The manifest's name of the run."""
    tags: tuple[str, ...] = ()

    @property
    def run_name(self) -> str:
        """The manifest's name, or ``<job>-<first 8 characters of the run>``."""
        return self.wanted_name or f"{self.job}-{self.run[:8]}"

    @property
    def name(self) -> str:
        """The same with the attempt's epoch."""
        return f"{self.run_name}-{self.epoch}"


class Tracker(Protocol):
    """Takes entries on a thread of its own; whatever it raises stops nothing but itself.

    Attributes:
        name: for logs and metrics.
        folder: files that are to be kept in the bucket; None without any.
        any_order: a step may come after later ones.
    """

    name: str
    folder: Path | None
    any_order: bool

    def write(self, entries: Sequence[Entry]) -> None:
        """Take entries; raises TrackerError where that may be tried again."""

    def save(self) -> None:
        """Flush what was written to the folder's files; raises TrackerError."""

    def close(self) -> None:
        """Write the rest and end the run of the tracker; raises TrackerError."""
