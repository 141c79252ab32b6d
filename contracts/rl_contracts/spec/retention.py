"""How much of a run's documents is kept while it runs, and afterwards."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rl_contracts.spec.base import Model


class Bound(Model):
    """What is kept of one kind of document; the oldest goes first. Unset: no bound."""

    max_age_seconds: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """Documents older than this many seconds are deleted. Unset: age is no reason to delete."""
    max_count: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """Number of documents to keep. Unset: any number."""
    max_bytes: Annotated[int, Field(ge=1, le=2**53 - 1)] | None = None
    """Total size in bytes of the documents to keep. Unset: any size."""

    @property
    def unset(self) -> bool:
        """Whether nothing is bounded."""
        return self == Bound()


class ObjectBound(Model):
    """What is kept in the bucket, of what keepLast keeps; the oldest goes first."""

    max_age_seconds: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """Objects older than this many seconds are deleted. Unset: age is no reason to delete."""
    max_bytes: Annotated[int, Field(ge=1, le=2**53 - 1)] | None = None
    """Total size in bytes of the objects to keep. Unset: any size."""


class Retention(Model):
    """What of a run is deleted while it runs.

    Read when a trainer starts. Documents are deleted after a checkpoint once the run has grown by a
    twentieth of the steps that it keeps, and at the end. Never deletes what a restart, a sampler or
    a kept batch needs.
    """

    batches: Bound = Field(default_factory=Bound)
    """Trained batches to keep. A deleted batch takes its rollouts and tasks along and can no longer
    be audited."""
    tasks: Bound = Field(default_factory=Bound)
    """Finished tasks to keep outside of kept batches. A deleted task takes its rollouts along."""
    rollouts: Bound = Field(default_factory=Bound)
    """Rollouts to keep outside of kept batches."""
    policies: ObjectBound = Field(default_factory=ObjectBound)
    """Published policy versions to keep in the bucket. The current version and those that samplers
    hold always stay."""
    checkpoints: ObjectBound = Field(default_factory=ObjectBound)
    """Checkpoints to keep in the bucket. The last one always stays."""

    @property
    def keeps_documents(self) -> bool:
        """Whether no batch, task or rollout is ever deleted."""
        return all(bound.unset for bound in (self.batches, self.tasks, self.rollouts))
