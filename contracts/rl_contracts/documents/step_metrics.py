"""Metrics of training steps."""

from __future__ import annotations

from pydantic import Field

from rl_contracts.documents.base import Record

MOST_GPUS = 256
PACE = "pace"
"""Phase of a step: waiting for open episodes while all of its groups are there."""


class Drops(Record):
    """Groups that were sampled or attempted but not trained.

    Long episodes are over-represented, because they are more likely to become stale: compare
    ``tokens / rollouts`` with ``response_tokens_mean`` of the trained rollouts.
    """

    by_cause: dict[str, int] = Field(default_factory=dict)
    """Groups by cause, e.g. ``stale`` or ``lease``; ``documents.task.Cause`` lists them."""
    by_length: dict[str, int] = Field(default_factory=dict)
    """Finished groups by the generated tokens of their longest member, up to a power of two."""
    rollouts: int = 0
    """Members of the finished groups."""
    tokens: int = 0
    """Generated tokens of those members."""


class GpuUse(Record):
    """The GPU of one trainer process during a step."""

    peak_bytes: int
    """Most that the process had allocated at a time."""
    used_bytes: int
    """Used at the end of the step, by all processes and by CUDA itself."""
    size_bytes: int
    busy: float | None = None
    """Share of the last sampling interval of NVIDIA's driver in which a kernel ran, in [0, 1]; None
    where NVML cannot be asked."""


class StepMetrics(Record):
    """Metrics of a training step: the run holds the last step's, ``metrics.jsonl`` all."""

    step: int
    epoch: int
    time: float
    """Store time, seconds since 1970."""
    reward_mean: float
    """Of all rollouts of the step's groups, also of those that are not trained; so are the fields
    up to ``reward_parts``. Earlier releases took those that are trained."""
    reward_std: float
    reward_min: float | None = None
    reward_max: float | None = None
    """None in documents of earlier releases; so are some fields below."""
    equal_groups_share: float = 0.0
    """Share of the groups of at least two rollouts whose rewards are all equal, in [0, 1]."""
    cut_off_share: float = 0.0
    """Share of rollouts whose last response reached a token limit, in [0, 1]."""
    no_answer_share: float = 0.0
    """Share of rollouts in which the answer schema read no answer, in [0, 1]."""
    reward_parts: dict[str, float] = Field(default_factory=dict)
    """Mean value of each scorer, not weighted."""
    loss: float
    """Policy loss."""
    gradient_norm: float
    learning_rate: float
    skipped_updates: int = 0
    """Updates that were not made: under precision FP16 their gradient was not finite."""
    loss_scale: float | None = None
    """What losses are multiplied by under precision FP16; None under others."""
    clip_fraction: float
    """Share of tokens beyond the clip on the side that their advantage pushes to, in [0, 1]."""
    ratio_min: float | None = None
    ratio_max: float | None = None
    """Extremes of π/μ over the tokens of all updates, limited to e^±20; None without an update."""
    logprob_gap_mean: float
    """Mean |trainer - sampler| log-probability over the step's tokens, before the update; for stale
    tokens it includes the change of the policy."""
    staleness_mean: float
    staleness_max: int
    """Largest number of training steps between a rollout's oldest token and the update."""
    staleness: dict[str, int] = Field(default_factory=dict)
    """Rollouts by staleness in steps."""
    tokens: int
    """Trained (generated) tokens."""
    rollouts: int
    withheld: int = 0
    """Rollouts whose reward counted and whose tokens were too old to train."""
    dropped_stale: int
    """Groups dropped since the last step because their oldest token was too stale."""
    dropped_no_signal: int = 0
    """Groups replaced since the last step because they carried no learning signal."""
    drops: Drops = Drops()
    """All groups dropped since the last step."""
    dropped_share: float = 0.0
    """Share of dropped groups in the last ten steps, in [0, 1]; filtered groups do not count."""
    correction_weight: float = 1.0
    """Mean weight of the off-policy correction over the tokens."""
    kl: float | None = None
    """Mean KL divergence from the reference per token; None without a reference."""
    kl_coefficient: float | None = None
    """KL coefficient of this step; None without a reference."""
    entropy: float | None = None
    """Mean entropy of the tokens' distributions in nats; None while only the critic is trained."""
    tau: float | None = None
    """Temperature of the MaxEnt estimator; None for other estimators."""
    value_loss: float | None = None
    """Loss of the critic; None without a critic."""
    critic_learning_rate: float | None = None
    """None without a critic, and in documents of earlier releases."""
    experts: dict[str, float] = Field(default_factory=dict)
    """Numbers about the routers of layers with experts (trainer: algorithm/routing.py); empty for
    models without experts."""
    response_tokens_mean: float
    wait_seconds: float
    """Seconds spent waiting for rollouts."""
    train_seconds: float
    """Seconds of forward, backward and update."""
    seconds: dict[str, float] = Field(default_factory=dict)
    """Seconds by phase, including the time since the previous step (trainer: phases.py)."""
    tokens_per_second: float | None = None
    """Trained tokens per second of ``train_seconds``."""
    mfu: float | None = None
    """Model FLOPs utilization, in [0, 1] (trainer: flops.py); None when the chip's peak or the
    model's work is unknown."""
    gpus: list[GpuUse] = Field(default_factory=list)
    """By rank, the first ``MOST_GPUS``; empty on processors."""
    tracking_behind: dict[str, int] = Field(default_factory=dict)
    """Entries that a tracker has not accepted (yet), by tracker; empty: none."""
    policy_version: int
    """Newest published version after the step."""
    replayed: bool = False


class MetricsFile(Record):
    """Metrics of a run's first steps in an epoch's ``metrics.jsonl``; the file may hold more."""

    epoch: int
    steps: int
    """≥ 1."""
