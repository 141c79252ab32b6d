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


class Retention(Model):
    """What of a run's documents is deleted. Never what a restart or a kept batch needs.

    Applied after each checkpoint; read as a trainer starts.
    """

    batches: Bound = Field(default_factory=Bound)
    """A batch takes along the rollouts and tasks that it trained: it cannot be audited any more."""
    tasks: Bound = Field(default_factory=Bound)
    """Ended tasks outside of kept batches; each takes its rollouts along."""
    rollouts: Bound = Field(default_factory=Bound)
    """Rollouts outside of kept batches."""

    @property
    def unset(self) -> bool:
        """Whether everything is kept."""
        return self == Retention()
