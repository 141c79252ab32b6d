"""Store of run documents. Every write names the writer's epoch and fails when it is outdated.

A number of an epoch is never given twice, not even after a backup of the store was restored: see
``next_epoch``.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError

from rl_contracts.documents.evaluation import EvaluationResult
from rl_contracts.documents.run import (
    DatasetSummary,
    Deleted,
    DurablePointer,
    EndedSamplers,
    FollowedRun,
    Holder,
    LearningSignal,
    Notice,
    Outcome,
    PolicyPointer,
    Resolved,
    Run,
    RunBase,
    Sampled,
    Totals,
    TrainOrder,
)
from rl_contracts.documents.step_metrics import StepMetrics
from rl_contracts.errors import FencedOutError, LateAttemptError
from rl_contracts.stores.clients.mongo import Mongo

COLLECTION = "runs"
NONCES = 1000
FOLLOWED = [name for name in FollowedRun.model_fields if name != "id"]


def next_epoch(previous: int, *, now: float) -> int:
    """A number for the next epoch that no trainer of the run has had, in any backup's future.

    Milliseconds since 1970, with a random part of the second. A document store that was restored
    from a backup no longer knows which epochs were given after it, but its clock has gone on: the
    next epoch is larger than all of these. If the clock was set back, the random part still makes
    it another number.

    Args:
        previous: the epoch that the run document names.
        now: store time.
    """
    return max(previous + 1, NONCES * int(now) + secrets.randbelow(NONCES))


class RunStore:
    """Run documents of a database."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._runs = mongo.collection(COLLECTION)

    def get(self, run: str) -> Run | None:
        """Read a run; None when it does not exist."""
        stored = self._mongo.call(f"reading run {run}", lambda: self._runs.find_one({"_id": run}))
        return Run.from_mongo(stored) if stored else None

    def follow(self, run: str) -> FollowedRun | None:
        """Read what samplers follow; None when the run does not exist.

        The whole document is several times as large.
        """
        stored = self._mongo.call(
            f"reading run {run}",
            lambda: self._runs.find_one({"_id": run}, dict.fromkeys(FOLLOWED, 1)),
        )
        return FollowedRun.from_mongo(stored) if stored else None

    def confirm(self, run: str) -> FollowedRun | None:
        """As ``follow``, but by a write that changes nothing: it shows the primary's present state.

        A read may be answered from a state that a majority has acknowledged before
        (https://www.mongodb.com/docs/manual/reference/read-concern-majority/). It reads the whole
        document, because the embedded store knows no projection here.
        """
        stored = self._mongo.call(
            f"confirming run {run}",
            lambda: self._runs.find_one_and_update(
                {"_id": run},
                {"$max": {"step": 0}},
                return_document=ReturnDocument.AFTER,
            ),
        )
        return FollowedRun.from_mongo(stored) if stored else None

    def require(self, run: str) -> Run:
        """Read a run; raises LookupError when it does not exist."""
        document = self.get(run)
        if document is None:
            raise LookupError(f"run {run} does not exist")
        return document

    def create(self, run: Run) -> None:
        """Create the run if it does not exist."""
        try:
            self._mongo.call(
                f"creating run {run.id}", lambda: self._runs.insert_one(run.to_mongo())
            )
        except DuplicateKeyError:
            return

    def unfinished_of(self, job: str, *, namespace: str) -> dict[str, int]:
        """Steps of the runs of all jobs that have or had a name, unless they have succeeded."""
        stored = self._mongo.call(
            f"listing the runs of job {job}",
            lambda: list(
                self._runs.find(
                    {"job": job, "namespace": namespace}, {"step": 1, "outcome.kind": 1}
                )
            ),
        )
        return {
            run["_id"]: run["step"]
            for run in stored
            if (run.get("outcome") or {}).get("kind") != "Succeeded"
        }

    def take_epoch(self, run: str, *, holder: Holder | None = None) -> Run:
        """Fence out all earlier trainers; return the run with the new epoch.

        Args:
            run: which run; it exists.
            holder: the attempt that takes it; None: no attempt of a job.

        Raises:
            LateAttemptError: a later attempt of the same job has the run.
        """
        wanted, epoch = holder or Holder(), 0
        while True:
            epoch = next_epoch(epoch, now=self._mongo.now())
            taken = self._take(run, epoch=epoch, holder=wanted)
            if taken is not None:
                return taken
            seen = self.require(run)
            if seen.holder.job == wanted.job and wanted.attempt < seen.holder.attempt:
                raise LateAttemptError(run=run, attempt=wanted.attempt, newest=seen.holder.attempt)
            epoch = max(epoch, seen.epoch)

    def _take(self, run: str, *, epoch: int, holder: Holder) -> Run | None:
        """Take the run by one atomic operation; None if its epoch or its holder is a later one."""
        later = {"holder.job": holder.job, "holder.attempt": {"$gt": holder.attempt}}
        fields = {"epoch": epoch, "holder": holder.model_dump(), "phase": "Starting"}
        stored = self._mongo.call(
            f"taking over run {run}",
            lambda: self._runs.find_one_and_update(
                {"_id": run, "epoch": {"$lt": epoch}, "$nor": [later]},
                {"$set": fields, "$inc": {"trainers": 1}},
                return_document=ReturnDocument.AFTER,
            ),
        )
        if stored is None:
            # The reply to the first of two equal commands was lost, or the majority was late. A
            # read might not show it yet; another write does.
            stored = self._mongo.call(
                f"taking over run {run}",
                lambda: self._runs.find_one_and_update(
                    {"_id": run, "epoch": epoch},
                    {"$set": {"phase": "Starting"}},
                    return_document=ReturnDocument.AFTER,
                ),
            )
        return Run.from_mongo(stored) if stored else None

    def reserve_version(self, run: str, *, epoch: int) -> int:
        """Reserve the next policy version number; no number is reserved twice."""
        stored = self._mongo.call(
            f"reserving a policy version of run {run}",
            lambda: self._runs.find_one_and_update(
                {"_id": run, "epoch": epoch},
                {"$inc": {"last_version": 1}},
                return_document=ReturnDocument.AFTER,
            ),
        )
        if stored is None:
            raise self._fenced_out(run, epoch)
        return int(stored["last_version"])

    def skip_versions(self, run: str, *, epoch: int, through: int) -> None:
        """Reserve no policy version up to ``through``: a time that a backup took back used them."""
        result = self._mongo.call(
            f"skipping policy versions of run {run}",
            lambda: self._runs.update_one(
                {"_id": run, "epoch": epoch}, {"$max": {"last_version": through}}
            ),
        )
        if result.matched_count == 0:
            raise self._fenced_out(run, epoch)

    def commit_step(
        self, run: str, *, epoch: int, head_batch: str, latest: StepMetrics, totals: Totals
    ) -> None:
        """Move the run's head to a trained batch; this commits the step."""
        self._set(
            run,
            epoch,
            step=latest.step,
            head_batch=head_batch,
            latest=latest.model_dump(),
            totals=totals.model_dump(),
            progress_at=self._mongo.now(),
        )

    def publish(self, run: str, *, epoch: int, pointer: PolicyPointer) -> None:
        """Set the policy pointer; the objects that it names must be complete."""
        self._set(run, epoch, policy=pointer.model_dump(), progress_at=self._mongo.now())

    def make_durable(self, run: str, *, epoch: int, pointer: DurablePointer) -> None:
        """Set the pointer to the last committed checkpoint."""
        self._set(run, epoch, durable=pointer.model_dump())

    def record_evaluation(
        self, run: str, *, epoch: int, last: str, newest: list[EvaluationResult]
    ) -> None:
        """Name the last evaluation, whose document is written; this makes it count.

        Args:
            run: which run.
            epoch: the writer's.
            last: id of the document.
            newest: what people see; see ``evaluation.newest``.
        """
        shown = [evaluation.model_dump(exclude_defaults=True) for evaluation in newest]
        now = self._mongo.now()
        self._set(run, epoch, last_evaluation=last, evaluations=shown, progress_at=now)

    def record_sampled(self, run: str, *, epoch: int, sampled: Sampled) -> None:
        """Record the results of a run that only samples, after another window was written."""
        self._set(run, epoch, sampled=sampled.model_dump(), progress_at=self._mongo.now())

    def record_datasets(
        self,
        run: str,
        *,
        epoch: int,
        datasets: Sequence[DatasetSummary],
        order: TrainOrder,
        steps: int,
    ) -> None:
        """Record the data sources, their order, and the number of steps that they make."""
        described = [dataset.model_dump(exclude_defaults=True) for dataset in datasets]
        self._set(run, epoch, datasets=described, train_order=order.model_dump(), steps=steps)

    def record_base(self, run: str, *, epoch: int, base: RunBase) -> None:
        """Record the hub commits of the model and the tokenizer."""
        self._set(run, epoch, base=base.model_dump())

    def record_resolved(self, run: str, *, epoch: int, resolved: Resolved) -> None:
        """Record the values that depend on the trainer's devices."""
        self._set(run, epoch, resolved=resolved.model_dump())

    def record_vocabulary(self, run: str, *, epoch: int, sha256: str) -> None:
        """Record the digest of the tokenizer's tokens."""
        self._set(run, epoch, vocabulary=sha256)

    def record_models(self, run: str, *, epoch: int, models: Mapping[str, str]) -> None:
        """Record the digests of the models that came from a bucket."""
        self._set(run, epoch, models=dict(models))

    def mark_first_batch(self, run: str, *, epoch: int) -> None:
        """Record the time at which the first batch was formed."""
        self._set(run, epoch, first_batch_at=self._mongo.now())

    def heartbeat(self, run: str, *, epoch: int, phase: str, progress: bool = False) -> None:
        """Record that the trainer is alive, what it does or waits for, and whether it got on."""
        now = self._mongo.now()
        made = {"progress_at": now} if progress else {}
        self._set(run, epoch, phase=phase, heartbeat_at=now, **made)

    def hint(self, run: str, *, epoch: int) -> None:
        """Wake samplers that wait for a task: there may be some now.

        Does nothing under an older epoch: a replaced trainer learns it by its heartbeat.
        """
        self._mongo.call(
            f"announcing tasks of run {run}",
            lambda: self._runs.update_one(
                {"_id": run, "epoch": epoch}, {"$inc": {"handed_out": 1}}
            ),
        )

    def note_deleted(self, run: str, *, epoch: int, deleted: Deleted) -> None:
        """Record what retention is about to delete."""
        self._set(run, epoch, deleted=deleted.model_dump())

    def note_ended_samplers(self, run: str, *, epoch: int, ended: EndedSamplers) -> None:
        """Record which sampler registrations are about to be deleted."""
        self._set(run, epoch, samplers_ended=ended.model_dump())

    def finish(self, run: str, *, epoch: int, outcome: Outcome) -> None:
        """Record how the run ended."""
        self._set(run, epoch, outcome=outcome.model_dump(), phase=outcome.kind)

    def note(self, run: str, *, epoch: int, notices: Sequence[Notice]) -> None:
        """Replace the notices."""
        self._set(run, epoch, notices=[notice.model_dump() for notice in notices])

    def record_learning_signal(
        self, run: str, *, epoch: int, signal: LearningSignal | None
    ) -> None:
        """Record why the steps give the policy nothing to learn; None: they do give something."""
        self._set(run, epoch, learning_signal=signal.model_dump() if signal else None)

    def clear_outcome(self, run: str, *, epoch: int) -> None:
        """Clear the outcome of an earlier attempt when another attempt begins."""
        self._set(run, epoch, outcome=None)

    def _set(self, run: str, epoch: int, **fields: Any) -> None:
        result = self._mongo.call(
            f"writing {', '.join(fields)} of run {run}",
            lambda: self._runs.update_one({"_id": run, "epoch": epoch}, {"$set": fields}),
        )
        if result.matched_count == 0:
            raise self._fenced_out(run, epoch)

    def _fenced_out(self, run: str, epoch: int) -> FencedOutError:
        present = self.get(run)
        return FencedOutError(run=run, epoch=epoch, present=present.epoch if present else None)
