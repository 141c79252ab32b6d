"""What rank 0 has the other ranks do, each with it at the same time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from rl_contracts.stores.model_folder import BasePlaces
from rl_trainer.algorithm.samples import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Load the models."""

    spec: str
    """The manifest's spec as JSON, with the number of steps."""
    base: BasePlaces
    """Where the model to start from lies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """Make a training step."""

    samples: list[Sample]
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Compute log-probabilities."""

    samples: list[Sample]
    temperature: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Assess:
    """Compute what the algorithm asks before advantages."""

    samples: list[Sample]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Hand rank 0 the policy's weights."""

    adapter: bool = False
    """The adapters alone, in float32; else all weights, adapters merged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Take this rank's tensors of the policy, to publish them when asked."""

    number: int
    """Of this snapshot."""
    drop: int
    """Number of one that will not be asked for; 0 for none."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Hand rank 0 the training state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PutBack:
    """Take the training state from a checkpoint."""

    bucket: str
    prefix: str
    manifest_sha256: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing: tells both sides that the other is there."""


@dataclass(frozen=True, slots=True)
class End:
    """Exit."""

    code: int


Order: TypeAlias = Begin | Update | Score | Assess | Snapshot | Share | Copy | PutBack | Pause | End
