"""Who decides when a job's pods may be there."""

from __future__ import annotations

from typing import Literal

from rl_contracts.spec.base import Model, Opaque


class Scheduling(Model):
    """Who admits the job's pods."""

    provider: Literal["None", "Kueue", "Volcano", "Coscheduling"] = "None"
    queue_name: str = ""
    """Kueue's LocalQueue."""
    workload_priority_class_name: str = ""
    """Of the queue."""
    gang: Opaque | None = None
    """Refused for now."""

    @property
    def queued(self) -> bool:
        """Whether pods wait for a queue's admission."""
        return self.provider == "Kueue"
