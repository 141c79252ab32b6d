"""The run: the only commit point. What is not reachable from it does not count."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal

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


class EvaluationResult(Record):
    """One source of data by exactly one policy version at one temperature."""

    step: int
    version: int
    split: Literal["validation", "test"] = "validation"
    dataset: str = ""
    """Name of the source in the manifest."""
    temperature: float
    accuracy: float | None = None
    """Mean reward of all samples: avg@k with ``samples_per_prompt`` of them."""
    loss: float | None = None
    """In its place where nothing is sampled (objective SFT): mean -log π of the records' tokens."""
    prompts: int
    samples_per_prompt: int = 1
    pass_at: dict[str, float] = Field(default_factory=dict)
    """Share of prompts that some of k samples answer, by k (trainer: pass_rates.py); empty in
    documents of earlier releases."""
    tokens: int
    versions: dict[str, int] = Field(default_factory=dict)
    """Generated tokens by the policy version that sampled them, as the rollouts' spans say; empty
    in documents of earlier releases."""
    logprob_gap_mean: float
    """Mean |trainer - sampler| log-probability over all generated tokens, equal weights."""
    logprob_gap_max: float
    seconds: float


def mean_accuracy(results: Iterable[EvaluationResult]) -> float | None:
    """Mean reward over the prompts of several sources; None without any."""
    found = [(one.accuracy, one.prompts) for one in results if one.accuracy is not None]
    prompts = sum(number for _, number in found)
    return sum(mean * number for mean, number in found) / prompts if prompts else None


def mean_pass_rate(results: Iterable[EvaluationResult]) -> float | None:
    """Share of the prompts that some sample answered; None where that was not measured."""
    known = [one for one in results if one.pass_at]
    passed = sum(one.pass_at[str(one.samples_per_prompt)] * one.prompts for one in known)
    prompts = sum(one.prompts for one in known)
    return passed / prompts if prompts else None


class DatasetSummary(Record):
    """What the trainer found in one source of data."""

    split: Literal["train", "validation", "test"]
    name: str
    uri: str
    records: int
    skipped: int = 0
    """Bad records that were left out."""
    first_skipped: list[str] = Field(default_factory=list)
    """Where the first of them are and what is wrong with them."""
    revision: str = ""
    """Commit of an hf:// source; later attempts read the same."""
    sha256: str = ""
    """Of the parsed records in their order: what a position of the train stream means."""


class RunBase(Record):
    """What a run began with, where that came from the hub; no attempt takes anything else."""

    uri: str
    """As the manifest names it."""
    commit: str = ""
    """Empty of a folder in a bucket."""
    tokenizer_uri: str = ""
    """Empty: the model's own."""
    tokenizer_commit: str = ""

    def __str__(self) -> str:
        """In one line, e.g. ``hf://org/name at 5f3a…``."""
        tokenizer = f", tokenizer {_at(self.tokenizer_uri, self.tokenizer_commit)}"
        return _at(self.uri, self.commit) + (tokenizer if self.tokenizer_uri else "")


def _at(uri: str, commit: str) -> str:
    return f"{uri} at {commit}" if commit else uri


class Sampled(Record):
    """What a run that only samples has written down: objective Sampling."""

    windows: int = 0
    """Parts in the bucket, of ``training.promptsPerStep`` prompts each."""
    prompts: int = 0
    """That have rollouts."""
    given_up: int = 0
    """That have none: their tasks are dead and say why."""
    rollouts: int = 0
    reward_sum: float = 0.0
    versions: dict[str, int] = Field(default_factory=dict)
    """Generated tokens by the policy version that sampled them."""

    @property
    def reward_mean(self) -> float | None:
        """Of all rollouts; None without any."""
        return self.reward_sum / self.rollouts if self.rollouts else None


class Totals(Record):
    """Sums over the lineage."""

    tokens_trained: int = 0
    rollouts_trained: int = 0
    dropped_stale: int = 0
    drops: Drops = Drops()
    wait_seconds: float = 0.0
    train_seconds: float = 0.0
    max_staleness_seen: int = 0


class Deleted(Record):
    """What retention has deleted; noted before it does."""

    batches_below: int = 0
    """Batches of earlier steps are gone or going."""
    tasks_below: int = 0
    """Train tasks at earlier positions may be gone. One that turns up there again was inserted by
    a trainer that had been replaced, and is no data."""


class EndedSamplers(Record):
    """Samplers whose registration was deleted a while after they had ended."""

    before: float = 0.0
    """Store time: those of an earlier last heartbeat are gone or going, and counted here."""
    died: int = 0
    """How many of them had not drained. One that drained and was replaced counts as lost only while
    its registration is there."""


class Run(Document):
    """One run. ``id`` is the run id."""

    collection: ClassVar[str] = "runs"

    namespace: str
    job: str
    created_at: float
    steps: int
    """Training steps that make the run complete; 0 until epochs have become steps."""
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
    sampled: Sampled = Sampled()
    totals: Totals = Totals()
    deleted: Deleted = Deleted()
    samplers_ended: EndedSamplers = EndedSamplers()
    base: RunBase | None = None
    """None before the first attempt has found it, and of models in a bucket."""
    datasets: list[DatasetSummary] = Field(default_factory=list)
    """As the last trainer read them."""
