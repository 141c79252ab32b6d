"""How often a group is tried, when it is complete, and when losing groups is an error."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import Model, rule, rules


class Completion(Model):
    """When a group of rollouts counts as complete and may be trained."""

    model_config = rules(
        rule(
            "(self.kind == 'Minimum') == has(self.minimum) && "
            "(self.kind == 'Minimum') == has(self.deadlineSeconds)",
            "rollouts.completion: minimum and deadlineSeconds go with kind Minimum, and kind "
            "Minimum needs both; kind is {self.kind}",
        )
    )
    kind: Literal["All", "Minimum"] = "All"
    """`All`: every member must finish. `Minimum`: when deadlineSeconds are over, minimum finished
    members are enough and the others are dropped."""
    minimum: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Number of finished members that is enough after the deadline; at most algorithm.groupSize,
    and at least 2 where the estimator compares members. Only with kind Minimum."""
    deadline_seconds: Annotated[int, Field(ge=1, le=86400)] | None = None
    """Seconds from the moment that a sampler first takes the group until minimum members are
    enough. Only with kind Minimum."""


class Rollouts(Model):
    """How often a group of rollouts is tried, and when losing groups ends the attempt."""

    max_attempts: Annotated[int, Field(ge=1, le=100)] = 5
    """Failed tries after which a group is given up. A sampler that stops or is deleted does not
    count as a failed try."""
    completion: Completion = Field(default_factory=Completion)
    max_empty_batches: Annotated[int, Field(ge=1, le=1000)] = 10
    """Number of batches' worth of groups that may be lost in a row; then the trainer attempt fails
    and names the cause."""
