"""A batch: what one training step consumed, in order, and with which advantages."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from rl_contracts.documents.base import Document, Record

TRAINED_FORMAT = "rl-operator/trained/1"
"""How documents become tensors, and tensors a digest. Another way of either is another format."""


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
    """Of all of its generated tokens, where they have none of their own."""
    weight: float = 1.0
    """Factor of its tokens' loss."""
    token_returns: bytes = b""
    """Packed float32, likewise: what the critic is trained to predict; empty without one."""
    token_advantages: bytes = b""
    """Packed float32, one for each generated token in order; empty: ``advantage`` for all."""


class TrainedDigest(Record):
    """What the learner was given, before it trained."""

    format: str = TRAINED_FORMAT
    sha256: str
    sequences: int
    tokens: int
    """Prompts included."""
    generated: int
    """Trained tokens."""


class Batch(Document):
    """One training step's input. Members of a group are adjacent."""

    collection: ClassVar[str] = "batches"

    run: str
    step: int
    """The step that it makes: training it takes the run from ``step - 1`` to ``step``."""
    epoch: int
    parent: str | None
    """Batch of the step before."""
    state: BatchState = BatchState.FORMED
    tasks: list[str]
    members: list[BatchMember]
    baselines: list[str] = Field(default_factory=list)
    """Greedy rollouts that rewards were compared with, in the order of ``tasks``; not trained."""
    next_sequence: int
    """First position of the train stream that this run has not inserted as a task yet."""
    formed_at: float
    """Store time."""
    digest: TrainedDigest | None = None
    """Of the tensors that were trained; None: formed by a release that wrote none."""
