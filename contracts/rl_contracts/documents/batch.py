"""A batch: what one training step consumed, in order, and with which advantages."""

from __future__ import annotations

from enum import StrEnum

from rl_contracts.documents.base import Document, Record


class BatchState(StrEnum):
    """How far a batch has come."""

    FORMED = "formed"
    TRAINED = "trained"
    """The run document's head has passed it."""
    DURABLE = "durable"
    """Contained in a committed checkpoint."""


class BatchMember(Record):
    """One rollout of a batch."""

    rollout: str
    advantage: float
    """Same for all of its generated tokens."""
    weight: float = 1.0


class Batch(Document):
    """One training step's input. Members of a group are adjacent."""

    run: str
    step: int
    """The step that it makes: training it takes the run from ``step - 1`` to ``step``."""
    epoch: int
    parent: str | None
    """Batch of the step before."""
    state: BatchState = BatchState.FORMED
    tasks: list[str]
    members: list[BatchMember]
    next_sequence: int
    """First position of the train stream that this run has not inserted as a task yet."""
    formed_at: float
    """Store time."""
