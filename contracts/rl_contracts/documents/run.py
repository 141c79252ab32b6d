"""The run document: the only commit point. What it does not lead to does not count."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from rl_contracts.documents.base import Document, Record
from rl_contracts.documents.evaluation import EvaluationResult
from rl_contracts.documents.step_metrics import Drops, StepMetrics
from rl_contracts.errors import Refusal


class PolicyPointer(Record):
    """The published policy. S3 has no fencing, so only this fenced pointer decides."""

    version: int
    epoch: int
    step: int
    """Training steps that the policy contains."""
    prefix: str
    """Key prefix in the run's bucket, e.g. ``runs/r1/policies/00000007-2-5f3a``."""
    manifest_sha256: str


class DurablePointer(Record):
    """The last committed checkpoint."""

    step: int
    prefix: str
    manifest_sha256: str


class Outcome(Record):
    """How the run ended; the trainer writes it under its epoch."""

    kind: Literal["Succeeded", "Failed", "Refused"]
    """``Refused``: the user must change an input; ``field``, ``value`` and ``remedy`` name it."""
    reason: str
    """CamelCase word for conditions."""
    message: str
    field: str = ""
    value: str = ""
    remedy: str = ""
    final_model: str = ""
    """``s3://`` URI of the final model in Hugging Face layout; only when Succeeded."""

    @classmethod
    def refused(cls, refusal: Refusal) -> Outcome:
        """The outcome for a refusal."""
        return cls(
            kind="Refused",
            reason=refusal.reason,
            message=refusal.message,
            field=refusal.field,
            value=refusal.value,
            remedy=refusal.remedy,
        )


class DatasetSummary(Record):
    """Records that the trainer read from a data source."""

    split: Literal["train", "validation", "test"]
    name: str
    uri: str
    records: int
    skipped: int = 0
    """Bad records that were skipped."""
    first_skipped: list[str] = Field(default_factory=list)
    """Place and problem of the first skipped records."""
    revision: str = ""
    """Commit of an hf:// source; later attempts read the same commit."""
    sha256: str = ""
    """Digest of the parsed records in order; it fixes what a position of the train stream means."""


class TrainOrder(Record):
    """What the order of a run's training records depends on, besides the sources."""

    weights: list[float]
    """Of the training sources, in their order."""
    seed: int | None
    """Of the shuffles; None: the records keep the order of their files."""


class RunBase(Record):
    """The hub models that a run began with; every attempt uses the same."""

    uri: str
    """URI of the model in the manifest."""
    commit: str = ""
    """Commit; empty for a folder in a bucket."""
    tokenizer_uri: str = ""
    """URI of the tokenizer; empty: the model's own tokenizer."""
    tokenizer_commit: str = ""

    def __str__(self) -> str:
        """Model and tokenizer as a single line, e.g. ``hf://org/name at 5f3a…``."""
        tokenizer = f", tokenizer {_at(self.tokenizer_uri, self.tokenizer_commit)}"
        return _at(self.uri, self.commit) + (tokenizer if self.tokenizer_uri else "")


def _at(uri: str, commit: str) -> str:
    return f"{uri} at {commit}" if commit else uri


class Resolved(Record):
    """Values of the manifest that depend on devices, as the trainer resolved them."""

    max_tokens_per_microbatch: int
    gradient_checkpointing: bool
    processes: int
    """Training processes of all replicas together."""
    mesh: str = ""
    """How they divide the work, e.g. ``fsdp 2 × tp 2``."""


class Sampled(Record):
    """Results of a run that only samples (objective Sampling)."""

    windows: int = 0
    """Files written to the bucket, of ``training.promptsPerStep`` prompts each."""
    prompts: int = 0
    """Prompts that have rollouts."""
    given_up: int = 0
    """Prompts without rollouts; their dead tasks hold the reason."""
    rollouts: int = 0
    reward_sum: float = 0.0
    versions: dict[str, int] = Field(default_factory=dict)
    """Generated tokens by policy version."""

    @property
    def reward_mean(self) -> float | None:
        """Mean reward of all rollouts; None without rollouts."""
        return self.reward_sum / self.rollouts if self.rollouts else None


class Totals(Record):
    """Sums over all steps of the lineage."""

    tokens_trained: int = 0
    rollouts_trained: int = 0
    withheld: int = 0
    dropped_stale: int = 0
    drops: Drops = Drops()
    wait_seconds: float = 0.0
    train_seconds: float = 0.0
    max_staleness_seen: int = 0


class Deleted(Record):
    """What retention has deleted; written before the deletion."""

    batches_below: int = 0
    """Batches of lower steps are deleted or being deleted."""
    tasks_below: int = 0
    """Train tasks at lower positions may be deleted. A task that appears there again was inserted
    by a replaced trainer and is not data."""


class EndedSamplers(Record):
    """Counts samplers whose registration was deleted after they ended."""

    before: float = 0.0
    """Store time: registrations with an earlier last heartbeat are deleted or being deleted."""
    died: int = 0
    """How many of them had not drained. A drained and replaced sampler counts as lost only while
    its registration exists."""


class Notice(Record):
    """What people must know of a run that goes on, e.g. what a restored store has lost."""

    time: float
    """Store time."""
    reason: str
    """In CamelCase."""
    message: str


class LearningSignal(Record):
    """Why the last steps give the policy nothing to learn. At most 2 KB."""

    reason: str
    """In CamelCase."""
    message: str
    """What was seen, and what to check."""
    step: int
    """Training steps until then."""
    examples: list[str] = Field(default_factory=list)
    """Ends of responses, at most two. Text of the policy: hostile as any input."""


class Holder(Record):
    """The trainer attempt that took the run last. Attempts of one job take it in their order."""

    job: str = ""
    """UID of the RLJob."""
    attempt: int = 0
    """Ordinal of the attempt within the job, from 1."""


class FollowedRun(Document):
    """The fields of a run that samplers read again and again. ``id`` is the run id."""

    collection: ClassVar[str] = "runs"

    epoch: int = 0
    """Fencing token of the newest trainer, never given twice; 0 before the first. Later ones are
    larger: milliseconds since 1970 with a random part (see ``stores.runs.next_epoch``)."""
    step: int = 0
    """Committed training steps."""
    last_version: int = 0
    """Highest policy version number ever handed out."""
    policy: PolicyPointer | None = None
    outcome: Outcome | None = None
    heartbeat_at: float = 0.0
    """Store time at which the trainer was last alive."""
    handed_out: int = 0
    """Grows whenever tasks are put into a queue: a hint to samplers that wait for one."""


class Run(FollowedRun):
    """A run of a job."""

    namespace: str
    job: str
    created_at: float
    steps: int
    """Training steps of the complete run; 0 until the trainer has converted epochs to steps."""
    holder: Holder = Holder()
    trainers: int = 0
    """How many trainers have taken the run."""
    head_batch: str | None = None
    """Batch of the last committed step; each batch names its parent."""
    durable: DurablePointer | None = None
    learning_signal: LearningSignal | None = None
    """None while the steps give the policy something to learn."""
    notices: list[Notice] = Field(default_factory=list)
    """The newest of them, oldest first."""
    phase: str = "Created"
    """What the trainer does or waits for, as text for people."""
    progress_at: float = 0.0
    """Store time of the last step, evaluation or publication, or of the last part of an evaluation,
    a window of samples, an export or a push to the hub."""
    first_batch_at: float | None = None
    """Store time at which the first batch of the run was formed."""
    latest: StepMetrics | None = None
    last_evaluation: str | None = None
    """The last document of ``evaluations``; each names its parent."""
    evaluations: list[EvaluationResult] = Field(default_factory=list)
    """The newest results; see ``evaluation.newest``. In documents of earlier releases, without a
    ``last_evaluation``, all of them."""
    sampled: Sampled = Sampled()
    totals: Totals = Totals()
    deleted: Deleted = Deleted()
    samplers_ended: EndedSamplers = EndedSamplers()
    base: RunBase | None = None
    """None until the first attempt has resolved it, and for models in a bucket."""
    datasets: list[DatasetSummary] = Field(default_factory=list)
    """Data sources as the latest trainer read them."""
    train_order: TrainOrder | None = None
    """None until a trainer has read the data, and for runs of earlier releases."""
    vocabulary: str = ""
    """SHA-256 of the tokenizer's tokens with their ids; empty until a trainer has loaded it, and
    for runs of earlier releases."""
    models: dict[str, str] = Field(default_factory=dict)
    """SHA-256 of the weights and config of each model from a bucket (``base``, ``critic``,
    ``teacher``), as the latest trainer loaded them; empty for runs of earlier releases."""
    resolved: Resolved | None = None
    """Of the latest trainer; None until it has loaded the model, or where nothing is trained."""
