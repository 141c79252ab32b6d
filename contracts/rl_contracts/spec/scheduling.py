"""Who decides when a job's pods may be there."""

from __future__ import annotations

from typing import Literal

from rl_contracts.spec.base import Model, Opaque

SamplerQuota = Literal["MinReplicas", "MaxReplicas", "None"]


class Scheduling(Model):
    """Who admits the job's pods."""

    provider: Literal["None", "Kueue", "Volcano", "Coscheduling"] = "None"
    queue_name: str = ""
    """Kueue's LocalQueue."""
    workload_priority_class_name: str = ""
    """Of the queue."""
    sampler_quota: SamplerQuota = "MaxReplicas"
    """Samplers that the queue is asked for; unless Max others come unasked."""
    gang: Opaque | None = None
    """Refused for now."""

    @property
    def queued(self) -> bool:
        """Whether pods wait for a queue's admission."""
        return self.provider == "Kueue"
