"""Where shared state lies, and how policies reach the samplers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import Model, ObjectName


class Storage(Model):
    """Where the run's documents (MongoDB) and its weights and datasets (S3) are stored."""

    secret_name: Annotated[ObjectName, Field(min_length=1)] = "rl-operator-stores"
    """Secret in the job's namespace that holds the MongoDB URI and database, and the S3 endpoint,
    bucket and keys."""


class Delta(Model):
    """Publishing only the weights that changed since the version before, instead of all of them."""

    anchor_every: Annotated[int, Field(ge=1, le=1000)] = 10
    """Number of versions from one full publication to the next; those between are deltas. 1: every
    version is published in full."""
    max_fraction: Annotated[float, Field(gt=0, le=1)] = 0.3
    """Largest size of a delta, as a share of the full weights. A version whose delta would be
    larger is published in full."""


class Transport(Model):
    """How weights travel from trainer through the bucket to samplers, whole or as deltas."""

    delta: Delta = Field(default_factory=Delta)
    relay: bool = False
    """Whether samplers also download versions from other pods of their pool, which takes load off
    the bucket. Needs networkPolicy RunOnly."""


Pause = Literal["Retract", "InPlace", "Abort"]


class WeightSync(Model):
    """How often policies are published, and how samplers take them up."""

    every_steps: Annotated[int, Field(ge=1, le=1000)] = 1
    """Training steps from one published policy version to the next; the last step is always
    published. At most algorithm.offPolicy.maxStaleness + 1."""
    pause: Pause = "Retract"
    """What happens to running requests while new weights are loaded. `Retract`: their cache is
    dropped and computed again under the new weights. `InPlace`: they keep their cache. `Abort`:
    they are cancelled and sent again. With training.lora only Retract is allowed, unless its
    experts are Adapted."""
    timeout_seconds: Annotated[int, Field(ge=5, le=86400)] = 600
    """Longest time in seconds that a sampler may take to download and load one version. After
    that onTimeout applies."""
    on_timeout: Literal["Recreate", "Exclude", "Fail"] = "Recreate"
    """What happens to a sampler that exceeds timeoutSeconds. `Recreate`: its pod is replaced.
    `Exclude`: it stays without work until it has caught up. `Fail`: the job fails."""
    keep_last: Annotated[int, Field(ge=2, le=10000)] = 8
    """Number of published versions kept in the bucket. Full versions that kept deltas start from
    are kept too."""
    transport: Transport = Field(default_factory=Transport)
