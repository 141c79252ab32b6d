"""The input of decisions about trainer attempts, and the decisions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rl_contracts.documents.run import Outcome, Run
from rl_contracts.spec.lifecycle import Lifecycle
from rl_contracts.spec.status import FailureStatus, RLJobStatus
from rl_contracts.spec.workers import Trainer
from rl_operator.state.pod import Pod
from rl_operator.state.trainer_job import TrainerJob


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptContext:
    """The input of ``lifecycle.decide``."""

    status: RLJobStatus
    lifecycle: Lifecycle
    trainer: TrainerJob | None
    """Job object of the status's attempt."""
    others_active: bool
    """An earlier attempt still has a pod, or may get one again."""
    pods: tuple[Pod, ...]
    """Of the status's attempt, sorted by ``failure_rank``: the last one decides."""
    run: Run | None
    run_known: bool
    """Whether the store answered; otherwise ``run`` says nothing."""
    job: str = ""
    """UID of the job."""
    may_begin: bool
    """Inputs are checked and enough samplers have registered."""
    wishes: Trainer = field(default_factory=Trainer)
    """``spec.trainer``."""
    renderable: bool = True
    """Whether a trainer can be rendered from the spec."""
    samplers_ready: bool = True
    """Whether enough samplers have registered for a start after a suspension."""
    suspend: bool = False
    """The job must have no pods."""
    halting: bool = False
    """The trainer was deleted for a suspension, which may be over."""
    stop: bool = False
    """The user wants the run to end for good, and no pod is left."""
    late: str = ""
    """Why a sampler that lags makes the run fail; empty when none does."""
    now: float
    store_now: float
    """The document store's clock, seconds since 1970: the times of a run are compared with this."""

    @property
    def newest_attempt(self) -> int:
        """The highest ordinal that this job has used; 0 before the first.

        The run document may know a higher one than the status, which a backup of the API server
        took back. A trainer with a lower ordinal would be refused by the run document.
        """
        holder = self.run.holder if self.run is not None else None
        named = holder.attempt if holder is not None and holder.job == self.job else 0
        return max(self.status.attempt, named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing to decide yet."""

    why: Literal["Inputs", "Samplers", "Backoff", "Stopping", "Outcome", "Running", "Suspended"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Write the next attempt's number to the status; its job object follows."""

    attempt: int
    replicas: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The attempt has failed, or was refused."""

    failure: FailureStatus
    counts: bool
    retry_at: float
    final: bool
    """The job has failed: no further attempt is allowed."""
    ignored: bool = False
    """A failure that the failure policy does not count."""
    fitted: int | None = None
    """Replicas of the next attempt when this one did not fit on the nodes."""
    spared: bool = False
    """It counts towards ``trainer.elastic.maxRestarts`` instead of ``backoffLimit``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Halted:
    """The attempt was stopped for a suspension and has no pods left; not a failure."""

    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The user has ended the run before its last step."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """The run has succeeded."""

    outcome: Outcome


Decision = Wait | Begin | Ended | Halted | Stopped | Complete
