"""Commands that rank 0 sends to the other ranks; all ranks carry each one out at the same time.

They travel as collectives, in step with training (``team``). What rank 0 asks of the other ranks'
uploads beside training are the requests of ``publish.policy_shard`` and ``checkpoint.parts``, which
must not take a place among these collectives and so travel over a store (``distributed.channel``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from rl_contracts.stores.files.model_folder import BaseLocations
from rl_trainer.algorithm.samples import Sample
from rl_trainer.algorithm.step_totals import Rates

Purpose: TypeAlias = Literal["Train", "Assess", "Score"]
"""What samples are taken for, which decides what of them each rank reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchModels:
    """Download the models and check their files, each rank for itself; first of all but pings."""

    spec: str
    """The manifest's spec as JSON, with the number of steps filled in."""
    base: BaseLocations
    """Where the model that training starts from lies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadModels:
    """Load the models that every rank has fetched."""

    spec: str
    """As in ``FetchModels``."""
    prefix: str = ""
    """Of the run's keys in the bucket, where images lie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeSamples:
    """Take samples for the next computation: each rank reads and checks its share of them.

    Samples of rollouts in the store come without tokens. A rank answers with what is wrong with
    the rollouts of its share, by id.
    """

    samples: list[Sample]
    purpose: Purpose
    step: int = 0
    """That is to be made of them; 0 for another purpose than Train."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainStep:
    """Make training step ``step`` (≥ 1) from the samples that were taken for it."""

    step: int
    batch: str = ""
    """Id of the batch with which tokens' values are stored; empty: a step that is made again."""
    rates: Rates | None = None
    """With which a step is made again; None: those of the manifest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSamples:
    """Compute log-probabilities of the samples that were taken, at ``temperature`` (> 0)."""

    temperature: float


@dataclass(frozen=True, slots=True)
class AssessSamples:
    """Compute what the advantages need of the models: KL, reference, values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportWeights:
    """Write the weights that this rank owns, adapters merged, as files of an exported model.

    A rank answers with its files and tensors (``checkpoint.model_parts``).
    """

    prefix: str
    """Of the model's keys."""


@dataclass(frozen=True, slots=True)
class GatherAdapter:
    """Send the policy's adapters to rank 0, in float32: PEFT's layout is a single file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotShard:
    """Copy the tensors that this rank publishes, and hold them until rank 0 requests them."""

    number: int
    """Of this snapshot, ≥ 1."""
    drop: int
    """Number of an earlier snapshot that will not be requested; 0 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotState:
    """Copy what this rank keeps of the training state, and hold it until rank 0 asks to write it.

    The state is that of weights, moments, critic and refreshed reference.
    """

    number: int
    """Of this snapshot, ≥ 1."""
    drop: int
    """Number of an earlier snapshot that will not be written; 0 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreCheckpoint:
    """Read a checkpoint from the bucket and load it."""

    bucket: str
    prefix: str
    manifest_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveModels:
    """Move models and moments to the device, or to host memory while the engine has the device."""

    to_device: bool


@dataclass(frozen=True, slots=True)
class Ping:
    """Do nothing: the answer shows that the rank is alive."""


@dataclass(frozen=True, slots=True)
class Exit:
    """End the process with this exit code."""

    code: int


RankCommand: TypeAlias = (
    FetchModels
    | LoadModels
    | TakeSamples
    | TrainStep
    | ScoreSamples
    | AssessSamples
    | ExportWeights
    | GatherAdapter
    | SnapshotShard
    | SnapshotState
    | RestoreCheckpoint
    | MoveModels
    | Ping
    | Exit
)
