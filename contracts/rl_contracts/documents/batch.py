"""A batch: the rollouts that a training step consumed, in order, with their advantages."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from rl_contracts.documents.base import Document, Record
from rl_contracts.documents.step_metrics import StepMetrics

TRAINED_FORMAT = "rl-operator/trained/2"
"""Names how documents become tensors and tensors a digest; a change of either is a new format."""
FIRST_TRAINED_FORMAT = "rl-operator/trained/1"
"""Of earlier releases: its digest is of all tensors of the batch, not of its sequences' digests."""


class BatchState(StrEnum):
    """How far a batch has progressed."""

    FORMED = "formed"
    TRAINED = "trained"
    """The run's head has moved to this batch or beyond."""
    DURABLE = "durable"
    """Contained in a committed checkpoint."""


class BatchMember(Record):
    """A rollout of a batch, with what the loss needs."""

    rollout: str
    advantage: float
    """Advantage of every generated token, unless ``token_advantages`` is set."""
    weight: float = 1.0
    """Factor of the loss of its tokens."""
    token_returns: bytes = b""
    """Packed float32, one for each generated token: targets of the critic; empty: no critic."""
    token_advantages: bytes = b""
    """Packed float32, one for each generated token; empty: ``advantage`` for all."""


class TrainedDigest(Record):
    """Digest and size of the tensors of a batch, recorded before they are trained."""

    format: str = TRAINED_FORMAT
    sha256: str
    sequences: int
    tokens: int
    """Prompt and generated tokens."""
    generated: int
    """Generated tokens: those that are trained."""


class Batch(Document):
    """The input of a training step. Members of a group are adjacent."""

    collection: ClassVar[str] = "batches"

    run: str
    step: int
    """The step that it produces: training it takes the run from ``step - 1`` to ``step``."""
    epoch: int
    parent: str | None
    """Batch of the previous step."""
    state: BatchState = BatchState.FORMED
    tasks: list[str]
    members: list[BatchMember]
    baselines: list[str] = Field(default_factory=list)
    """Greedy rollouts that the rewards were compared with, in the order of ``tasks``; never
    trained."""
    withheld: list[str] = Field(default_factory=list)
    """Rollouts of its groups that were too old to train under ``offPolicy.onStale: Withhold``:
    their rewards count in the advantages, none of their tokens is trained."""
    reward_baselines: dict[str, float] = Field(default_factory=dict)
    """Estimator RAE: the baseline of each data source after this batch; empty with any other."""
    next_sequence: int
    """First position of the train stream that is not inserted as a task yet."""
    formed_at: float
    """Store time."""
    digest: TrainedDigest | None = None
    """Digest of the tensors that were trained; None: written by a release without digests."""
    metrics: StepMetrics | None = None
    """Of the step, for viewers; None until it is trained, and after a trainer that ended just
    before it wrote them."""

    @property
    def rollouts(self) -> tuple[str, ...]:
        """All rollouts that it depends on: trained ones, baselines and withheld ones."""
        return (*(member.rollout for member in self.members), *self.baselines, *self.withheld)
