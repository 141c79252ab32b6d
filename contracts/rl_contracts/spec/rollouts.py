"""How often a group is tried, when it is complete, and when losing groups is an error."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import Model, rule, rules


class Completion(Model):
    """When a group of rollouts is complete."""

    model_config = rules(
        rule(
            "(self.kind == 'Minimum') == has(self.minimum) && "
            "(self.kind == 'Minimum') == has(self.deadlineSeconds)",
            "minimum and deadlineSeconds go with kind Minimum, and kind Minimum needs both",
        )
    )
    kind: Literal["All", "Minimum"] = "All"
    """Minimum: once the deadline is over, so many finished members are enough."""
    minimum: Annotated[int, Field(ge=1, le=1024)] | None = None
    deadline_seconds: Annotated[int, Field(ge=1, le=86400)] | None = None
    """Since a sampler first took the group."""


class Rollouts(Model):
    """How groups of rollouts are tried and given up."""

    max_attempts: Annotated[int, Field(ge=1, le=100)] = 5
    """After so many failed ones a group is dead; stopped samplers do not count."""
    completion: Completion = Field(default_factory=Completion)
    max_empty_batches: Annotated[int, Field(ge=1, le=1000)] = 10
    """So many steps' worth of groups lost in a row end the attempt, naming the cause."""
