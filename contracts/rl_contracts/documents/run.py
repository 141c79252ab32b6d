"""The run: the only commit point. What is not reachable from it does not count."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rl_contracts.documents.base import Document, Record
from rl_contracts.errors import Refusal


class PolicyPointer(Record):
    """Names the published policy exactly; S3 has no fencing, so the pointer does it."""

    version: int
    epoch: int
    step: int
    """Training steps that the policy contains."""
    prefix: str
    """Key prefix in the run's bucket, e.g. ``runs/r1/policies/00000007-2-5f3a``."""
    manifest_sha256: str


class DurablePointer(Record):
    """Names the last committed checkpoint."""

    step: int
    prefix: str
    manifest_sha256: str


class Outcome(Record):
    """How the run ended; written by the trainer under its epoch."""

    kind: Literal["Succeeded", "Failed", "Refused"]
    """``Refused``: the user must change something; ``field``, ``value``, ``remedy`` say what."""
    reason: str
    """CamelCase word for conditions."""
    message: str
    field: str = ""
    value: str = ""
    remedy: str = ""
    final_model: str = ""
    """``s3://`` URI of the final model in Hugging Face layout, when succeeded."""

    @classmethod
    def refused(cls, refusal: Refusal) -> Outcome:
        """The outcome that tells of a refusal."""
        return cls(
            kind="Refused",
            reason=refusal.reason,
            message=refusal.message,
            field=refusal.field,
            value=refusal.value,
            remedy=refusal.remedy,
        )


class StepMetrics(Record):
    """One training step. Written to the run (the last one) and to ``metrics.jsonl`` (all)."""

    step: int
    epoch: int
    time: float
    """Store time, seconds since 1970."""
    reward_mean: float
    reward_std: float
    loss: float
    gradient_norm: float
    learning_rate: float
    clip_fraction: float
    """Share of tokens whose gradient the clip removed."""
    logprob_gap_mean: float
    """Mean |trainer - sampler| log-probability over the step's tokens, before the update;
    contains the policy's own movement where tokens are stale."""
    staleness_mean: float
    staleness_max: int
    """Training steps between the oldest token of a rollout and the update."""
    tokens: int
    """Trained (generated) tokens."""
    rollouts: int
    dropped_stale: int
    """Groups dropped since the last step because their oldest token was too old."""
    response_tokens_mean: float
    wait_seconds: float
    """Waiting for rollouts."""
    train_seconds: float
    """Forward, backward, update."""
    policy_version: int
    """Newest published version after the step."""
    replayed: bool = False


class EvaluationResult(Record):
    """Validation by exactly one policy version at one temperature."""

    step: int
    version: int
    temperature: float
    accuracy: float
    """Mean reward over the prompts, each sampled once."""
    prompts: int
    tokens: int
    logprob_gap_mean: float
    """Mean |trainer - sampler| log-probability over all generated tokens, equal weights."""
    logprob_gap_max: float
    seconds: float


class Totals(Record):
    """Sums over the lineage."""

    tokens_trained: int = 0
    rollouts_trained: int = 0
    dropped_stale: int = 0
    wait_seconds: float = 0.0
    train_seconds: float = 0.0
    max_staleness_seen: int = 0


class Run(Document):
    """One run. ``id`` is the run id."""

    namespace: str
    job: str
    created_at: float
    steps: int
    """Training steps that make the run complete."""
    epoch: int = 0
    """Fencing token of the newest trainer; 0 before the first."""
    step: int = 0
    """Committed training steps."""
    head_batch: str | None = None
    """Batch of the last committed step; batches name their parent."""
    last_version: int = 0
    """Highest policy version number ever handed out."""
    policy: PolicyPointer | None = None
    durable: DurablePointer | None = None
    outcome: Outcome | None = None
    phase: str = "Created"
    """The trainer's own words for what it does or waits for."""
    heartbeat_at: float = 0.0
    """Store time at which the trainer was last alive."""
    progress_at: float = 0.0
    """Store time of the last step, evaluation or publication."""
    first_batch_at: float | None = None
    """Store time at which the first batch of the run was formed."""
    latest: StepMetrics | None = None
    evaluations: list[EvaluationResult] = Field(default_factory=list)
    totals: Totals = Totals()
