"""How much of a run's documents is kept while it runs, and afterwards."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rl_contracts.spec.base import Model


class Bound(Model):
    """What is kept of one kind; the oldest goes first. Unset: no bound."""

    max_age_seconds: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    max_count: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    max_bytes: Annotated[int, Field(ge=1, le=2**53 - 1)] | None = None

    @property
    def unset(self) -> bool:
        """Whether nothing is bounded."""
        return self == Bound()


class ObjectBound(Model):
    """What is kept in the bucket, of what ``keepLast`` keeps. Unset: no bound."""

    max_age_seconds: Annotated[int, Field(ge=1)] | None = None
    max_bytes: Annotated[int, Field(ge=1)] | None = None


class Retention(Model):
    """What of a run is deleted. Never what a restart, a sampler or a kept batch needs.

    Applied after each checkpoint; read as a trainer starts.
    """

    batches: Bound = Field(default_factory=Bound)
    """A batch takes its rollouts and tasks along: it cannot be audited any more."""
    tasks: Bound = Field(default_factory=Bound)
    """Ended tasks outside of kept batches; each takes its rollouts along."""
    rollouts: Bound = Field(default_factory=Bound)
    """Rollouts outside of kept batches."""
    policies: ObjectBound = Field(default_factory=ObjectBound)
    """The published one stays, and what samplers hold."""
    checkpoints: ObjectBound = Field(default_factory=ObjectBound)
    """The last one stays."""

    @property
    def keeps_documents(self) -> bool:
        """Whether no batch, task or rollout is ever deleted."""
        return all(one.unset for one in (self.batches, self.tasks, self.rollouts))
