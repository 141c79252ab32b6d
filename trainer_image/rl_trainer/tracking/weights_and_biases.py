"""Weights & Biases, online, or offline into files that ``wandb sync`` uploads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import wandb

from rl_trainer.tracking.entries import Entry
from rl_trainer.tracking.tracker import About, TrackerError

START_SECONDS = 60
STEP = "step"
COLUMNS = ["rollout", "reward", "stop_reason", "text"]


class WeightsAndBiases:
    """Online one W&B run for all attempts of a run, offline one for each attempt, in a group.

    An attempt hands over all steps again. Online the server says which step it has last; earlier
    ones are left out, and those of that step come twice, with equal values, because an evaluation
    after it may be missing. Offline files know nothing of each other: the newest hold all steps.

    Args:
        folder: W&B's own files go below it.
        about: the attempt.
        mode: offline files are kept in the bucket.
        key: for the server; not needed offline.
        start_seconds: how long its server may take to begin a run.
    """

    name = "wandb"
    any_order = False

    def __init__(
        self,
        folder: Path,
        about: About,
        *,
        mode: Literal["Offline", "Online"],
        key: str | None,
        start_seconds: int = START_SECONDS,
    ) -> None:
        self.folder: Path | None = folder if mode == "Offline" else None
        self._place, self._about, self._mode, self._key = folder, about, mode, key
        self._start_seconds = start_seconds
        self._run: Any = None
        self._first_step = 0
        """Entries of earlier steps are there already."""

    def write(self, entries: Sequence[Entry]) -> None:
        """Implement ``Tracker``."""
        try:
            run = self._begun()
            for entry in entries:
                if entry.step >= self._first_step:
                    run.log(_values(entry))
        except (wandb.Error, OSError) as error:
            raise TrackerError(f"W&B: {type(error).__name__}: {error}"[:500]) from error

    def save(self) -> None:
        """Do nothing: W&B writes its files by itself."""

    def close(self) -> None:
        """Implement ``Tracker``."""
        try:
            if self._run is not None:
                self._run.finish()
                wandb.teardown()  # until its service has ended, files may lack their ends
        except (wandb.Error, OSError) as error:
            raise TrackerError(f"W&B: {type(error).__name__}: {error}"[:500]) from error

    def _begun(self) -> Any:
        if self._run is None:
            self._place.mkdir(parents=True, exist_ok=True)
            try:
                self._run = self._made()
            except wandb.Error:
                wandb.teardown()  # else its service holds the run to be in use, and never begins it
                raise
        return self._run

    def _made(self) -> Any:
        about, online = self._about, self._mode == "Online"
        run = wandb.init(
            project=about.project,
            entity=about.entity,
            group=None if online else about.run,
            name=about.run_name if online else about.name,
            tags=about.tags,
            id=about.run if online else f"{about.run}-{about.epoch}",
            resume="allow" if online else None,
            dir=str(self._place),
            config=about.settings,
            settings=self._settings(),
        )
        if run.resumed:
            self._first_step = int(run.summary.get(STEP, 0))
        run.define_metric(STEP, hidden=True)
        run.define_metric("*", step_metric=STEP)
        return run

    def _settings(self) -> wandb.Settings:
        return wandb.Settings(
            mode="offline" if self._mode == "Offline" else "online",
            api_key=self._key,
            console="off",
            silent=True,
            disable_git=True,
            disable_code=True,
            disable_job_creation=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
            init_timeout=self._start_seconds,
        )


def _values(entry: Entry) -> dict[str, Any]:
    values: dict[str, Any] = {STEP: entry.step, **entry.scalars}
    for name, counts in entry.counts.items():
        seen = sorted((int(value), count) for value, count in counts.items())
        if seen:
            edges = [seen[0][0] - 0.5, *(value + 0.5 for value, _ in seen)]
            held = ([count for _, count in seen], edges)
            values[name] = wandb.Histogram(np_histogram=held)
    if entry.samples:
        rows = [
            [sample.rollout, sample.reward, sample.stop_reason, sample.text]
            for sample in entry.samples
        ]
        values["samples"] = wandb.Table(columns=COLUMNS, data=rows)
    return values
