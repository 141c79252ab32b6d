"""What the operator reports of a pool. Computed from observation alone, never read back."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rl_contracts.spec.base import Model
from rl_contracts.spec.status import Conditions, ShortText, Text, Time


class ScaleStatus(Model):
    """One change of a pool's size by the operator."""

    time: Time
    """When the size changed."""
    before: int
    """Number of pods before the change."""
    after: int
    """Number of pods after the change."""
    reason: ShortText
    """Why the size changed, in one word."""
    message: Text = ""
    """What was observed that led to the change."""
    tokens_per_second: float = 0.0
    """Generated tokens per second of all pods just before."""


class AssignmentStatus(Model):
    """A run that a shared pool serves."""

    job: ShortText
    """Name of the RLJob, in the pool's namespace."""
    uid: ShortText
    """UID of the RLJob that is served."""
    run: ShortText
    """ID of the RLJob's run."""
    since: Time
    """When the pool was given to the run."""


class ServedStatus(Model):
    """Counters of one of several runs that a shared pool serves at the same time."""

    job: ShortText
    """Name of the RLJob, in the pool's namespace."""
    serving: int | None = None
    """Number of pods that serve this run with a policy new enough. Absent: unknown."""
    lagging: int | None = None
    """Number of pods whose policy of this run is too old to train with. Absent: unknown."""
    version: int | None = None
    """Oldest policy version of this run that a ready pod serves. Absent: unknown."""
    target_version: int = 0
    """Newest published policy version of this run."""
    lag: int | None = None
    """Training steps between targetVersion and version. Absent: unknown."""


class WaitingStatus(Model):
    """A job that waits for a shared pool."""

    job: ShortText
    """Name of the RLJob, in the pool's namespace."""
    since: Time
    """When the job began to wait."""
    why: Text = ""
    """Why the first waiting job cannot have the pool beside the jobs that have it. Empty for the
    others."""


class SamplerPoolStatus(Model):
    """What the operator last observed of the pool."""

    observed_generation: int = -1
    """metadata.generation that the status was computed from; -1 until the operator has seen the
    pool."""
    replicas: int = 0
    """Number of pods of the pool, also for `/scale`."""
    selector: Text = ""
    """Label selector of the pool's pods, for `/scale` and an HPA."""
    ready: int = 0
    """Number of pods that are ready."""
    serving: int | None = None
    """Number of pods that are ready and have a policy new enough to train with. Absent: unknown,
    while the state store cannot be read."""
    updated: int = 0
    """Number of pods of the present template."""
    unavailable: int = 0
    """Number of wanted pods that are not ready."""
    draining: int = 0
    """Number of pods that finish their work and then end."""
    replaced: int = 0
    """Number of pods deleted so far because they stayed stale or silent."""
    target_version: int = 0
    """Newest published policy version of the run that is served."""
    lagging: int | None = None
    """Number of pods whose policy is too old to train with. Absent: unknown."""
    version: int | None = None
    """Oldest policy version that a ready pod serves; 0 when none does. Absent: unknown."""
    lag: int | None = None
    """Training steps between targetVersion and version. Absent: unknown."""
    last_scale: Annotated[list[ScaleStatus], Field(max_length=5)] = Field(default_factory=list)
    """The last five changes of size by the operator, the newest last."""
    assignment: AssignmentStatus | None = None
    """The run that a shared pool serves, the first of those that it serves at the same time.
    Absent: none."""
    beside: Annotated[list[AssignmentStatus], Field(max_length=7)] = Field(default_factory=list)
    """The other runs that a shared pool serves, in the order in which they joined."""
    assignment_epoch: int = 0
    """Counter that grows whenever the pool is given to a run or taken from it."""
    assignment_began: int = 0
    """Value of assignmentEpoch when the pool was last given away while no run had it."""
    runs: Annotated[list[ServedStatus], Field(max_length=8)] = Field(default_factory=list)
    """Counters of each run where a shared pool serves several; those above are of the first."""
    waiting: Annotated[list[WaitingStatus], Field(max_length=32)] = Field(default_factory=list)
    """The first jobs that wait for a shared pool, in their order."""
    waiting_jobs: int = 0
    """Number of all jobs that wait for a shared pool."""
    conditions: Conditions = Field(default_factory=list)
    """State of the pool for programs; see docs/reference/conditions.md."""
