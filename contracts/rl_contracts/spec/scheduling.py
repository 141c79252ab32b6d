"""Who decides when a job's pods may be there."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import Model, rule, rules

SamplerQuota = Literal["MinReplicas", "MaxReplicas", "None"]
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
QueueName = Annotated[str, Field(pattern=rf"^({_LABEL}(\.{_LABEL})*)?$", max_length=253)]


class Scheduling(Model):
    """Which queue admits the job's pods, and how many of them it admits."""

    model_config = rules(
        rule(
            "self.provider != 'Kueue' || size(self.queueName) > 0",
            "scheduling.queueName is empty, and provider Kueue admits a job to a queue: name a "
            "LocalQueue of the job's namespace",
            field="queueName",
        ),
        rule(
            "self.provider == 'Kueue' || size(self.queueName) == 0",
            "scheduling.queueName is {self.queueName}, and without provider Kueue no queue is "
            "asked: set provider to Kueue or remove queueName",
            field="queueName",
        ),
        rule(
            "self.provider == 'Kueue' || size(self.workloadPriorityClassName) == 0",
            "scheduling.workloadPriorityClassName is {self.workloadPriorityClassName}, and without "
            "provider Kueue nothing reads it: set provider to Kueue or remove it",
            field="workloadPriorityClassName",
        ),
        rule(
            "self.provider == 'Kueue' || self.samplerQuota == 'MaxReplicas'",
            "scheduling.samplerQuota is {self.samplerQuota}, and without provider Kueue nothing "
            "reads it: set provider to Kueue or remove it",
            field="samplerQuota",
        ),
    )
    provider: Literal["None", "Kueue"] = "None"
    """System that admits the pods. `None`: pods are created at once, and the trainer starts when
    its samplers are ready. `Kueue`: trainer and samplers wait for one Kueue Workload."""
    queue_name: QueueName = ""
    """Name of the Kueue LocalQueue in the job's namespace. Required with provider Kueue, empty
    without it."""
    workload_priority_class_name: QueueName = ""
    """Name of a Kueue WorkloadPriorityClass that orders the job within its queue. Empty: the
    queue's own order. Only with provider Kueue."""
    sampler_quota: SamplerQuota = "MaxReplicas"
    """Number of samplers to reserve in the queue. `MaxReplicas`: as many as autoscaling may create.
    `MinReplicas`: autoscaling.minReplicas; further samplers run outside the quota. `None`: none.
    Only with provider Kueue."""

    @property
    def queued(self) -> bool:
        """Whether pods wait for a queue's admission."""
        return self.provider == "Kueue"
