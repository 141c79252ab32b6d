"""Retries, deadlines, suspension, and what remains of a job."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import RULES, Model, rule, rules
from rl_contracts.spec.retention import Retention


class ExitCodes(Model):
    """Exit codes of the trainer's container."""

    operator: Literal["In", "NotIn"] = "In"
    values: Annotated[list[Annotated[int, Field(ge=1, le=255)]], Field(min_length=1, max_length=64)]


class PodCondition(Model):
    """A condition that the trainer's pod ended with."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """E.g. ``DisruptionTarget``: evicted or preempted."""


class FailureRule(Model):
    """What follows when the trainer's pod ends in a certain way."""

    model_config = rules(
        rule(
            "has(self.onExitCodes) != has(self.onPodCondition)",
            "a rule of failurePolicy has either onExitCodes or onPodCondition",
        )
    )
    action: Literal["FailJob", "Ignore", "Restart"]
    """``Ignore`` restarts without counting against backoffLimit."""
    on_exit_codes: ExitCodes | None = None
    on_pod_condition: PodCondition | None = None


class FailurePolicy(Model):
    """The first rule that matches decides; without one a failure is counted and restarted."""

    rules: Annotated[list[FailureRule], Field(max_length=20)] = Field(default_factory=list)


class Lifecycle(Model):
    """Retries, deadlines and what remains."""

    model_config = rules(
        rule(
            "self.restartBackoffSeconds <= self.restartBackoffMaxSeconds",
            "lifecycle.restartBackoffMaxSeconds must be at least restartBackoffSeconds",
        )
    )
    backoff_limit: Annotated[int, Field(ge=0, le=100)] = 3
    """Failed trainer attempts after which the job fails."""
    restart_backoff_seconds: Annotated[int, Field(ge=1, le=3600)] = 10
    """Before the second attempt; doubles with each further one."""
    restart_backoff_max_seconds: Annotated[int, Field(ge=1, le=86400)] = 600
    """The longest of these pauses."""
    failure_policy: FailurePolicy = Field(default_factory=FailurePolicy)
    active_deadline_seconds: (
        Annotated[
            int,
            Field(
                ge=1,
                le=2**31 - 1,
                json_schema_extra={RULES: [rule("self >= oldSelf", "it can only be raised")]},
            ),
        ]
        | None
    ) = None
    """From the first attempt's start, or a resumption, to the job's end."""
    pending_deadline_seconds: Annotated[int, Field(ge=10, le=604800)] = 1800
    """Longest time an attempt's trainer pod may take to run."""
    progress_deadline_seconds: Annotated[int, Field(ge=60, le=604800)] = 1800
    """An attempt without a new step or evaluation for so long counts as failed."""
    suspend_grace_seconds: Annotated[int, Field(ge=1, le=86400)] = 120
    """What a trainer pod gets to write a checkpoint when it is stopped; read as it starts."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """Unset: a finished job is kept."""
    attempt_history_limit: Annotated[int, Field(ge=0, le=5)] = 1
    """Ended PyTorchJobs before the current one that stay for their logs."""
    cleanup_policy: Literal["None", "Workers", "All"] = "Workers"
    """Of a finished job: samplers go, the last PyTorchJobs stay; None keeps both, All neither."""
    retention: Retention = Field(default_factory=Retention)
    data_policy: Literal["Retain", "Delete"] = "Retain"
    """Whether deleting the job deletes its documents and objects."""
