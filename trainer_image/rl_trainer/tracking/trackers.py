"""The trackers of an attempt."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from rl_contracts.documents.evaluation import EvaluationResult
from rl_contracts.documents.head import RolloutHead
from rl_contracts.documents.run import Run
from rl_contracts.documents.step_metrics import StepMetrics
from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.training.tracking import MLFLOW_KEYS, WANDB_KEY
from rl_contracts.stores.objects import Objects
from rl_contracts.stores.rollouts import RolloutStore
from rl_trainer.checkpoint.model_card import settings
from rl_trainer.context.figures import Figures
from rl_trainer.context.job import Job, Progress
from rl_trainer.tracking import entries
from rl_trainer.tracking.outbox import Outbox
from rl_trainer.tracking.sample_files import SampleFiles
from rl_trainer.tracking.tracker import About, Tracker

FOLDER = "tracking/"
"""Below the run's prefix: ``tracking/<epoch>/<tracker>/``."""
SECRET = "spec.training.tracking.secretName"
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # the outbox retries, and checks first what is there
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "WANDB_ERROR_REPORTING": "false",
}
"""Read by the libraries on import: no telemetry is sent to their makers."""
END_SECONDS, STOP_SECONDS = 30.0, 5.0
"""Longest waits for a tracker: when the run is complete, and when an attempt ends otherwise."""


class Trackers:
    """Sends every tracker the same entries, and updates the figures for Prometheus."""

    def __init__(
        self,
        outboxes: Sequence[Outbox],
        *,
        samples: int,
        figures: Figures,
        rollouts: RolloutStore,
    ) -> None:
        self._outboxes, self._samples, self._figures = outboxes, samples, figures
        self._rollouts = rollouts

    @property
    def behind(self) -> dict[str, int]:
        """Entries that a tracker has not taken yet or never will; those that are behind alone."""
        counts = {outbox.name: outbox.behind for outbox in self._outboxes}
        return {name: count for name, count in counts.items() if count}

    def go_on(self, progress: Progress, evaluations: Sequence[EvaluationResult]) -> None:
        """Send the steps and evaluations of the attempts before this one."""
        self._figures.go_on(progress.metrics, evaluations)
        # Copies: the trackers' threads read them later, while the loop adds to its own.
        steps, results = list(progress.metrics), list(evaluations)
        for outbox in self._outboxes:
            outbox.go_on(entries.of_history(steps, results), count=len(steps) + len(results))

    def step(self, metrics: StepMetrics, rollouts: Sequence[RolloutHead]) -> None:
        """Send a step, with ``samples`` of its rollouts, spread evenly over the batch.

        These are read for it; one that retention or an accident took is not shown.
        """
        self._figures.step(metrics)
        if self._outboxes:
            apart = max(1, len(rollouts) // max(1, self._samples))
            chosen = itertools.islice(rollouts, 0, apart * self._samples, apart)
            names = [head.id for head in chosen]
            read = self._rollouts.read(names).whole
            shown = [read[name] for name in names if name in read]
            self._put([entries.of_step(metrics, shown)])

    def evaluated(self, results: Sequence[EvaluationResult], *, time: float) -> None:
        """Send evaluation results."""
        self._figures.evaluated(results)
        self._put(entries.of_evaluations(results, time=time))

    def close(self, *, finished: bool) -> None:
        """Let each tracker take what waits, for at most ``END_SECONDS`` or ``STOP_SECONDS``."""
        for outbox in self._outboxes:
            outbox.close(seconds=END_SECONDS if finished else STOP_SECONDS)

    def _put(self, new_entries: Sequence[entries.Entry]) -> None:
        for outbox in self._outboxes:
            outbox.put(new_entries)


def check(job: Job) -> None:
    """Check that the trackers' credentials are mounted, and not written in the manifest.

    Raises:
        RefusedError: one is missing, or stands in ``spec.trainer.env``.
    """
    _credentials(job.spec, job.tracking_folder)


def of_attempt(job: Job, run: Run) -> Trackers:
    """The trackers that the manifest names, none of them contacted yet; raises as ``check``."""
    section = job.spec.training.tracking
    credentials = _credentials(job.spec, job.tracking_folder)
    about = About(
        project=section.project or run.namespace,
        job=job.name,
        run=job.run,
        epoch=job.epoch,
        settings=settings(job.spec),
        entity=section.entity,
        wanted_name=section.run_name,
        tags=tuple(section.tags),
    )
    named = _trackers(job.spec, about, folder=job.folder / "tracking", credentials=credentials)
    outboxes = [
        Outbox(tracker, upload=_uploader(job.stores.objects, f"{job.prefix}{FOLDER}{job.epoch}/"))
        for tracker in named
    ]
    return Trackers(
        outboxes,
        samples=section.samples,
        figures=job.figures,
        rollouts=job.stores.rollouts,
    )


def _trackers(
    spec: RLJobSpec, about: About, *, folder: Path, credentials: dict[str, str]
) -> list[Tracker]:
    """Their libraries are loaded only where they are asked for: each takes seconds."""
    section = spec.training.tracking
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    named: list[Tracker] = []
    if section.samples:
        named.append(SampleFiles(folder / SampleFiles.name))
    if section.tensor_board:
        from rl_trainer.tracking.tensorboard import TensorBoard

        named.append(TensorBoard(folder / TensorBoard.name))
    if section.wandb is not None:
        from rl_trainer.tracking.weights_and_biases import WeightsAndBiases

        place, key = folder / WeightsAndBiases.name, credentials.get(WANDB_KEY)
        named.append(WeightsAndBiases(place, about, mode=section.wandb, key=key))
    if section.mlflow is not None:
        from rl_trainer.tracking.mlflow_runs import MLflow

        os.environ.update(
            {
                mlflow_key: credentials[mlflow_key]
                for mlflow_key in MLFLOW_KEYS
                if mlflow_key in credentials
            }
        )
        named.append(MLflow(section.mlflow, about))
    return named


def _credentials(spec: RLJobSpec, folder: Path | None) -> dict[str, str]:
    """The Secret's keys that trackers know, from the files that it is mounted as.

    Raises:
        RefusedError: one is needed and not there, or one stands in ``trainer.env``.
    """
    written = {variable.name for variable in spec.trainer.env}.intersection(
        (WANDB_KEY, *MLFLOW_KEYS)
    )
    if written:
        name = min(written)
        raise RefusedError(
            Refusal(
                field="spec.trainer.env",
                value=name,
                reason="CredentialInSpec",
                message=f"{name} is a credential, and whoever may read the job reads it.",
                remedy=f"Put it into a Secret under the key {name}, and name that in {SECRET}.",
            )
        )
    credentials = {}
    for name in (WANDB_KEY, *MLFLOW_KEYS):
        if folder is not None and (folder / name).is_file():
            credentials[name] = (folder / name).read_text().strip()
    if spec.training.tracking.wandb == "Online" and not credentials.get(WANDB_KEY):
        raise RefusedError(
            Refusal(
                field=SECRET,
                value=spec.training.tracking.secret_name or "",
                reason="CredentialMissing",
                message=f"tracking.wandb Online needs a Secret with the key {WANDB_KEY}.",
                remedy="Name a Secret that has it, or choose wandb Offline, which needs none.",
            )
        )
    return credentials


def _uploader(objects: Objects, prefix: str) -> Callable[[Tracker], None]:
    """Keeps those of a tracker's files that have changed since they were last kept."""
    kept: dict[Path, tuple[int, int]] = {}

    def upload(tracker: Tracker) -> None:
        if tracker.folder is None or not tracker.folder.is_dir():
            return
        for path in sorted(tracker.folder.rglob("*")):
            if path.is_symlink() or not path.is_file():
                continue
            stat = path.stat()
            state = (stat.st_size, stat.st_mtime_ns)
            if kept.get(path) != state:
                name = path.relative_to(tracker.folder).as_posix()
                objects.put_file(f"{prefix}{tracker.name}/{name}", path)
                kept[path] = state

    return upload
