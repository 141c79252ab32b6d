"""Audit of a training step: the trained tokens with their advantages and weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from rl_contracts.audit.lineage import HEADER_FIELDS, Header, trace
from rl_contracts.documents import trained
from rl_contracts.documents.arrays import unpack_float32, unpack_int32
from rl_contracts.documents.batch import (
    FIRST_TRAINED_FORMAT,
    TRAINED_FORMAT,
    Batch,
    TrainedDigest,
)
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.task import Task
from rl_contracts.errors import IntegrityError, ObjectMissingError
from rl_contracts.staleness import staleness
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.listing import scan

FORMAT = "rl-operator/audit-batch/1"

Verdict = Literal["match", "mismatch", "unrecorded", "unknown-format", "unrebuildable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAudit:
    """What a batch trained, rebuilt from its documents."""

    batch: Batch
    on_lineage: bool
    verdict: Verdict
    rebuilt: TrainedDigest | None
    problem: str
    sequences: tuple[trained.Sequence, ...]
    rollouts: dict[str, Rollout]
    tasks: dict[str, Task]

    @property
    def good(self) -> bool:
        """Whether the documents still match what was trained."""
        return self.verdict == "match"

    def to_json(self) -> Iterator[tuple[str, Any]]:
        """Members of the JSON object; the long list of sequences comes last, as a generator."""
        batch, digest = self.batch, self.batch.digest
        yield "format", FORMAT
        yield "run", batch.run
        yield "batch", batch.id
        yield "step", batch.step
        yield "epoch", batch.epoch
        yield "parent", batch.parent
        yield "state", batch.state
        yield "onLineage", self.on_lineage
        yield "formedAt", batch.formed_at
        yield "tasks", batch.tasks
        yield "baselines", batch.baselines
        yield "withheld", batch.withheld
        yield (
            "digest",
            {
                "verdict": self.verdict,
                "trained": digest.model_dump() if digest else None,
                "rebuilt": self.rebuilt.model_dump() if self.rebuilt else None,
                "problem": self.problem,
            },
        )
        yield "sequences", (self.sequence_json(sequence) for sequence in self.sequences)

    def sequence_json(self, sequence: trained.Sequence) -> dict[str, Any]:
        """A sequence with its arrays as lists, its task, sampler and reward."""
        rollout = self.rollouts[sequence.rollout]
        task = self.tasks.get(sequence.group)
        return {
            "rollout": sequence.rollout,
            "task": sequence.group,
            "example": task.example if task else None,
            "sampler": rollout.sampler,
            "reward": rollout.reward,
            "temperature": sequence.temperature,
            "versions": sorted({span.version for span in rollout.spans}),
            "staleness": self.staleness(rollout),
            "tokens": unpack_int32(sequence.tokens),
            "positions": unpack_int32(sequence.positions),
            "mask": list(sequence.mask),
            "logprobs": unpack_float32(sequence.logprobs),
            "policySteps": unpack_int32(sequence.policy_steps),
            "advantages": unpack_float32(sequence.advantages),
            "weights": unpack_float32(sequence.weights),
            "returns": unpack_float32(sequence.returns),
        }

    def staleness(self, rollout: Rollout) -> int:
        """Training steps between the rollout's oldest token and the update."""
        return staleness(rollout.oldest_step, step=self.batch.step)


def audit(stores: Stores, run: str, *, step: int, epoch: int | None = None) -> BatchAudit:
    """Rebuild what a step trained.

    Args:
        stores: the namespace's stores.
        run: id of the run.
        step: training step, ≥ 1.
        epoch: epoch of the trainer that formed the batch; None: the batch on the run's lineage.

    Raises:
        LookupError: the run or batch does not exist; the message names existing ones.
    """
    run_document = stores.runs.require(run)
    stored = scan(stores.mongo, Batch.collection, run, fields=HEADER_FIELDS)
    headers = [Header.of(header) for header in stored]
    lineage = trace(run_document, headers)
    wanted = lineage.at(step)
    if epoch is not None:
        wanted = next(
            (header for header in headers if (header.step, header.epoch) == (step, epoch)), None
        )
    if wanted is None:
        raise LookupError(_absent(step, epoch, headers, run_step=run_document.step))
    batch = stores.batches.get([wanted.id])[wanted.id]
    return rebuild(stores, batch, on_lineage=wanted in lineage.steps)


def rebuild(stores: Stores, batch: Batch, *, on_lineage: bool) -> BatchAudit:
    """Rebuild a batch's sequences from its documents and compare their digest."""
    rollouts: dict[str, Rollout] = {}
    sequences: list[trained.Sequence] = []
    rebuilt, problem = None, ""
    try:
        rollouts = stores.rollouts.get([member.rollout for member in batch.members])
        sequences = trained.sequences(batch, rollouts)
        rebuilt = trained.rebuilt_digest(sequences, like=batch.digest)
    except (IntegrityError, ObjectMissingError) as error:
        problem = str(error)
    return BatchAudit(
        batch=batch,
        on_lineage=on_lineage,
        verdict=judge(batch.digest, rebuilt),
        rebuilt=rebuilt,
        problem=problem,
        sequences=tuple(sequences),
        rollouts=rollouts,
        tasks=stores.tasks.get(batch.tasks),
    )


def judge(recorded: TrainedDigest | None, rebuilt: TrainedDigest | None) -> Verdict:
    """The verdict on a recorded and a rebuilt digest."""
    if rebuilt is None:
        return "unrebuildable"
    if recorded is None:
        return "unrecorded"
    if recorded.format not in (TRAINED_FORMAT, FIRST_TRAINED_FORMAT):
        return "unknown-format"
    return "match" if recorded == rebuilt else "mismatch"


def _absent(step: int, epoch: int | None, headers: list[Header], *, run_step: int) -> str:
    others = sorted(header.epoch for header in headers if header.step == step)
    if epoch is None and others:
        return (
            f"no batch of step {step} is on the run's lineage; epochs {others} have one of this "
            "step, see --epoch"
        )
    kept = sorted(header.step for header in headers)
    what = f"{kept[0]} to {kept[-1]}" if kept else "none"
    of = f" and epoch {epoch}" if epoch is not None else ""
    return f"no batch of step {step}{of}; the run is at step {run_step}, kept steps: {what}"
