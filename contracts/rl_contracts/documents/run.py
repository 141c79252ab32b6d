"""The run: the only commit point. What is not reachable from it does not count."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from rl_contracts.documents.base import Document, Record
from rl_contracts.documents.evaluation import EvaluationResult
from rl_contracts.documents.step_metrics import Drops, StepMetrics
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
