"""What decides about a trainer's attempts, and what can be decided."""

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
    """What decides about attempts."""

    status: RLJobStatus
    lifecycle: Lifecycle
    trainer: TrainerJob | None
    """Job object of the status's attempt."""
    others_active: bool
    """An earlier attempt still has a pod, or will have one again."""
    pods: tuple[Pod, ...]
    """Of the status's attempt, the one that tells most last."""
    run: Run | None
    run_known: bool
    """Whether the store answered; otherwise ``run`` says nothing."""
    may_begin: bool
    """Inputs are checked and samplers are there."""
    wishes: Trainer = field(default_factory=Trainer)
    """``spec.trainer``."""
    renderable: bool = True
    """Whether a trainer could be made of the spec, as it is now."""
    samplers_ready: bool = True
    """As many as a start after a suspension asks for."""
    suspend: bool = False
    """The job ought to have no pods."""
    late: str = ""
    """What is the matter with a sampler that lags for so long that the run is to fail."""
    now: float
    store_now: float
    """The document store's clock: what the run says of times is compared with this one alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing to decide yet."""

    why: Literal["Inputs", "Samplers", "Backoff", "Stopping", "Outcome", "Running", "Suspended"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Write the next ordinal to the status; its job object follows."""

    attempt: int
    replicas: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The attempt has failed, or was refused."""

    failure: FailureStatus
    counts: bool
    retry_at: float
    final: bool
    """It was the last one."""
    ignored: bool = False
    """A failure that the failure policy does not count."""
    fitted: int | None = None
    """Replicas of the next attempt, where this one did not fit on the nodes."""
    spared: bool = False
    """It is one of ``trainer.elastic.maxRestarts``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Halted:
    """The attempt was stopped for a suspension and has left nothing behind: no failure."""

    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """The run has succeeded."""

    outcome: Outcome


Decision = Wait | Begin | Ended | Halted | Complete
