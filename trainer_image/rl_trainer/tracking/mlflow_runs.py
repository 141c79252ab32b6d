"""MLflow: one of its runs for the attempt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from rl_trainer.tracking.entries import Entry
from rl_trainer.tracking.tracker import About, TrackerError

METRICS_PER_CALL = 500
MAX_PARAM = 500
"""Characters; servers of all releases take as many."""
PARAMS_PER_CALL = 100


class MLflow:
    """Logs scalars; histograms as a metric for each value seen. Samples are not sent."""

    name = "mlflow"
    folder: Path | None = None
    any_order = True

    def __init__(self, uri: str, about: About) -> None:
        """Log to a server, which is first asked when there is something to log."""
        self._uri, self._about = uri, about
        self._client: MlflowClient | None = None
        self._run = ""

    def write(self, entries: Sequence[Entry]) -> None:
        """Implement ``Tracker``."""
        try:
            client, metrics = (
                self._begun(),
                [metric for entry in entries for metric in _metrics(entry)],
            )
            for first in range(0, len(metrics), METRICS_PER_CALL):
                client.log_batch(self._run, metrics=metrics[first : first + METRICS_PER_CALL])
        except (MlflowException, OSError) as error:
            raise TrackerError(f"MLflow: {error}"[:500]) from error

    def save(self) -> None:
        """Do nothing: the server has every entry already."""

    def close(self) -> None:
        """Implement ``Tracker``."""
        try:
            if self._client is not None and self._run:
                self._client.set_terminated(self._run)
        except (MlflowException, OSError) as error:
            raise TrackerError(f"MLflow: {error}"[:500]) from error

    def _begun(self) -> MlflowClient:
        if self._client is None:
            self._client = MlflowClient(tracking_uri=self._uri)
        if not self._run:
            about, client = self._about, self._client
            run = self._created(client)
            params = [
                Param(key, str(value)[:MAX_PARAM]) for key, value in flat(about.settings).items()
            ]
            for first in range(0, len(params), PARAMS_PER_CALL):
                client.log_batch(run, params=params[first : first + PARAMS_PER_CALL])
            self._run = run
        return self._client

    def _created(self, client: MlflowClient) -> str:
        """The attempt's run; reuses the run of a creation whose answer was lost."""
        about = self._about
        experiment = client.get_experiment_by_name(about.project)
        where = experiment.experiment_id if experiment else client.create_experiment(about.project)
        tags = {"rl.job": about.job, "rl.run": about.run, "rl.epoch": str(about.epoch)}
        same = " and ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())
        runs = client.search_runs([where], filter_string=same, max_results=1)
        if runs:
            return str(runs[0].info.run_id)
        return str(client.create_run(where, run_name=about.name, tags=tags).info.run_id)


def flat(settings: dict[str, Any], *, under: str = "") -> dict[str, Any]:
    """Settings by their path, e.g. ``training.optimizer.kind``."""
    flattened: dict[str, Any] = {}
    for name, value in settings.items():
        inner = isinstance(value, dict)
        flattened |= flat(value, under=f"{under}{name}.") if inner else {f"{under}{name}": value}
    return flattened


def _metrics(entry: Entry) -> list[Metric]:
    counted = {
        f"{name}/{value}": float(count)
        for name, counts in entry.counts.items()
        for value, count in counts.items()
    }
    at = int(entry.time * 1000)
    return [
        Metric(name, value, at, entry.step) for name, value in (entry.scalars | counted).items()
    ]
