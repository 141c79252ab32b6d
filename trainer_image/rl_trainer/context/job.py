"""What one trainer attempt works on, and how far it has come."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rl_contracts.documents.evaluation import EvaluationResult
from rl_contracts.documents.run import LearningSignal, Totals
from rl_contracts.documents.step_metrics import MetricsFile, StepMetrics
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.stores.connect import Stores
from rl_trainer.context.figures import Figures
from rl_trainer.context.heartbeat import Heartbeat
from rl_trainer.context.traces import RolloutTraces
from rl_trainer.distributed.team import Team


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The run, the epoch that this attempt holds, and its surroundings."""

    name: str
    run: str
    epoch: int
    spec: RLJobSpec
    stores: Stores
    heartbeat: Heartbeat
    folder: Path
    """Scratch space."""
    hub_token_file: Path | None = None
    """Holds the token for hf:// sources."""
    tracking_folder: Path | None = None
    """Holds the trackers' credentials."""
    turns_folder: Path | None = None
    """Holds the agent's socket where the engine of this pod shares the devices."""
    weights_folder: Path | None = None
    """Of that engine."""
    team: Team = field(default_factory=Team)
    """The ranks that this one, rank 0, leads."""
    figures: Figures = field(default_factory=Figures)
    """Figures for Prometheus."""
    traces: RolloutTraces = field(default_factory=RolloutTraces)
    """Of rollouts, where the manifest asks for them."""
    clock: Callable[[], float] = time.monotonic

    @property
    def prefix(self) -> str:
        """Key prefix of the run in the bucket."""
        return self.stores.run_prefix(self.run)

    @property
    def wait_seconds(self) -> float:
        """Longest wait without progress, in seconds.

        90 % of the operator's deadline, so that the trainer can still report what it waited for.
        """
        return 0.9 * self.spec.lifecycle.progress_deadline_seconds


@dataclass(slots=True, kw_only=True)
class Progress:
    """The lineage up to the weights in memory; changed by the loop alone."""

    step: int = 0
    """Steps that the weights contain."""
    head: str | None = None
    """Batch of the last of them."""
    next_sequence: int = 0
    """First position of the train stream that was not handed out yet."""
    totals: Totals = field(default_factory=Totals)
    metrics: list[StepMetrics] = field(default_factory=list)
    metrics_file: MetricsFile | None = None
    """Holds the first of them."""
    evaluations: list[EvaluationResult] = field(default_factory=list)
    signal: LearningSignal | None = None
    """As the run document has it."""
    last_evaluation: str | None = None
    """Id of the document of the last of them."""
