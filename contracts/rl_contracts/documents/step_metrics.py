"""What is told of one training step."""

from __future__ import annotations

from pydantic import Field

from rl_contracts.documents.base import Record


class Drops(Record):
    """Groups that were sampled, or tried, in vain.

    Biased to long episodes, which are the likelier to grow too old: compare ``tokens / rollouts``
    with ``response_tokens_mean`` of what was trained.
    """

    by_cause: dict[str, int] = Field(default_factory=dict)
    """Groups by class of cause, e.g. ``stale`` or ``lease``: documents/task.py lists them."""
    by_length: dict[str, int] = Field(default_factory=dict)
    """Finished groups by the generated tokens of their longest member, up to a power of two."""
    rollouts: int = 0
    """Members of the finished ones among them."""
    tokens: int = 0
    """Generated tokens of those."""


class StepMetrics(Record):
    """One training step. Written to the run (the last one) and to ``metrics.jsonl`` (all)."""

    step: int
    epoch: int
    time: float
    """Store time, seconds since 1970."""
    reward_mean: float
    reward_std: float
    reward_min: float | None = None
    reward_max: float | None = None
    """None in documents of earlier releases, as are further fields below."""
    reward_parts: dict[str, float] = Field(default_factory=dict)
    """Mean of what each scorer said, not weighted."""
    loss: float
    """Of the policy."""
    gradient_norm: float
    learning_rate: float
    clip_fraction: float
    """Share of tokens whose gradient the clip removed."""
    ratio_min: float | None = None
    ratio_max: float | None = None
    """Extremes of π/μ over the tokens of all updates, in e^±20; None without an update."""
    logprob_gap_mean: float
    """Mean |trainer - sampler| log-probability over the step's tokens, before the update;
    contains the policy's own movement where tokens are stale."""
    staleness_mean: float
    staleness_max: int
    """Training steps between the oldest token of a rollout and the update."""
    staleness: dict[str, int] = Field(default_factory=dict)
    """Rollouts by that number of steps."""
    tokens: int
    """Trained (generated) tokens."""
    rollouts: int
    dropped_stale: int
    """Groups dropped since the last step because their oldest token was too old."""
    dropped_no_signal: int = 0
    """Groups replaced since the last step because they would have taught nothing."""
    drops: Drops = Drops()
    """All groups dropped since the last step."""
    dropped_share: float = 0.0
    """Of the groups of the last ten steps, in [0, 1]; those filtered out on purpose not counted."""
    correction_weight: float = 1.0
    """Mean over the tokens of what the off-policy correction multiplied by."""
    kl: float | None = None
    """Mean divergence of a token from the reference; None without one."""
    kl_coefficient: float | None = None
    """Of this step; None without a reference."""
    entropy: float | None = None
    """Mean of the tokens' distributions in nats; None without an entropy bonus."""
    tau: float | None = None
    """MaxEnt's temperature; None under other estimators."""
    value_loss: float | None = None
    """None without a critic."""
    response_tokens_mean: float
    wait_seconds: float
    """Waiting for rollouts."""
    train_seconds: float
    """Forward, backward, update."""
    seconds: dict[str, float] = Field(default_factory=dict)
    """By phase: the step's own, and what came between the step before and this one (trainer:
    phases.py)."""
    tokens_per_second: float | None = None
    """Trained tokens by train_seconds."""
    mfu: float | None = None
    """Model FLOPs utilization, in [0, 1] (trainer: flops.py); None where the chip's peak, or the
    model's work, is not known."""
    tracking_behind: dict[str, int] = Field(default_factory=dict)
    """Entries that a tracker has not taken yet or never will, by tracker; empty: none."""
    policy_version: int
    """Newest published version after the step."""
    replayed: bool = False
