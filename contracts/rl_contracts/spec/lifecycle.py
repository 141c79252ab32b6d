"""Retries, deadlines, suspension, and what remains of a job."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import RULES, Model, rule, rules
from rl_contracts.spec.retention import Retention


class ExitCodes(Model):
    """Exit codes of the trainer's container that a rule of failurePolicy matches."""

    operator: Literal["In", "NotIn"] = "In"
    """`In`: matches an exit code that is in values. `NotIn`: matches any other exit code except
    0."""
    values: Annotated[list[Annotated[int, Field(ge=1, le=255)]], Field(min_length=1, max_length=64)]
    """Exit codes to compare with, each from 1 to 255."""


class PodCondition(Model):
    """A condition that the trainer's pod has when it ends."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """Type of a pod condition with status True, e.g. `DisruptionTarget` for a pod that was evicted
    or preempted."""


class FailureRule(Model):
    """What happens when the trainer's pod ends in a certain way."""

    model_config = rules(
        rule(
            "has(self.onExitCodes) != has(self.onPodCondition)",
            "a rule of lifecycle.failurePolicy has either onExitCodes or onPodCondition: set "
            "one of them and remove the other",
        )
    )
    action: Literal["FailJob", "Ignore", "Restart"]
    """What happens. `FailJob`: the job fails at once. `Ignore`: the trainer restarts, and the
    failure does not count against backoffLimit. `Restart`: the trainer restarts, and it counts."""
    on_exit_codes: ExitCodes | None = None
    """Matches by the exit code of the trainer's container. Set either this or onPodCondition."""
    on_pod_condition: PodCondition | None = None
    """Matches by a condition of the trainer's pod. Set either this or onExitCodes."""


class FailurePolicy(Model):
    """How failures of the trainer are treated, by exit code or pod condition."""

    rules: Annotated[list[FailureRule], Field(max_length=20)] = Field(default_factory=list)
    """Rules in order: the first that matches decides. A failure without a matching rule counts
    against backoffLimit, and the trainer restarts."""


class Lifecycle(Model):
    """Retries, deadlines, and what remains of a finished or deleted job."""

    model_config = rules(
        rule(
            "self.restartBackoffSeconds <= self.restartBackoffMaxSeconds",
            "lifecycle.restartBackoffMaxSeconds must be at least restartBackoffSeconds: "
            "{self.restartBackoffMaxSeconds} is less than {self.restartBackoffSeconds}",
            field="restartBackoffMaxSeconds",
        )
    )
    backoff_limit: Annotated[int, Field(ge=0, le=100)] = 3
    """Number of failed trainer attempts that are retried; one more and the job fails."""
    restart_backoff_seconds: Annotated[int, Field(ge=1, le=3600)] = 10
    """Seconds before the second attempt. The pause doubles with each further attempt."""
    restart_backoff_max_seconds: Annotated[int, Field(ge=1, le=86400)] = 600
    """Longest pause in seconds between two attempts."""
    failure_policy: FailurePolicy = Field(default_factory=FailurePolicy)
    active_deadline_seconds: (
        Annotated[
            int,
            Field(
                ge=1,
                le=2**31 - 1,
                json_schema_extra={
                    RULES: [
                        rule(
                            "self >= oldSelf",
                            "lifecycle.activeDeadlineSeconds cannot be lowered from {oldSelf} to "
                            "{self}: it can only be raised, or removed",
                        )
                    ]
                },
            ),
        ]
        | None
    ) = None
    """Seconds that the job may run, from the start of its first attempt, from its resumption, or
    from the edit that sets this on a running job; then it fails. Can only be raised or removed.
    Unset: no limit."""
    pending_deadline_seconds: Annotated[int, Field(ge=10, le=604800)] = 1800
    """Longest time in seconds from the creation of an attempt's trainer pods until they run; then
    the attempt fails."""
    progress_deadline_seconds: Annotated[int, Field(ge=60, le=604800)] = 1800
    """Seconds without progress after which an attempt counts as failed. Progress is a training
    step, also one that is trained again after a crash, or a publication, and in long phases each
    part: a finished prompt of an evaluation or of objective Sampling, a record of a validation
    under SFT, scored samples, an uploaded part of a model."""
    suspend_grace_seconds: Annotated[int, Field(ge=1, le=86400)] = 120
    """Seconds that a stopped trainer pod gets to write a checkpoint before it is killed. Read when
    the pod starts."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """Seconds after which a finished job is deleted. Unset: it is kept."""
    attempt_history_limit: Annotated[int, Field(ge=0, le=5)] = 1
    """Number of PyTorchJobs of earlier attempts that are kept for their logs."""
    cleanup_policy: Literal["None", "Workers", "All"] = "Workers"
    """What is deleted when the job has finished. `Workers`: the samplers; the last PyTorchJobs
    stay for their logs. `None`: nothing. `All`: samplers and PyTorchJobs."""
    retention: Retention = Field(default_factory=Retention)
    data_policy: Literal["Retain", "Delete"] = "Retain"
    """What deleting the job does to its stored data. `Retain`: documents and objects stay.
    `Delete`: they are deleted too."""
