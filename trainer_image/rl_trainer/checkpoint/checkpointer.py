"""Durable training state: everything that the next step depends on, manifest last.

Each rank writes its own part of it beside training; rank 0 asks for the parts, and commits them.

Random state is no part of it: it is a function of seed and step (see ``learner``).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from rl_contracts.documents.batch import Batch, BatchState
from rl_contracts.documents.manifest import Manifest
from rl_contracts.documents.run import DurablePointer
from rl_contracts.documents.step_metrics import MetricsFile
from rl_contracts.retention.sweep import Sweeper
from rl_contracts.stores.files import artifacts
from rl_contracts.stores.files.artifacts import Uploaded
from rl_contracts.stores.objects import Objects
from rl_trainer.checkpoint import report, retention, saved, unfinished
from rl_trainer.checkpoint.parts import PartWriter, WritePart, WrittenPart
from rl_trainer.checkpoint.saved import STATE, Saved, State
from rl_trainer.context.job import Job, Progress
from rl_trainer.context.uploads import Uploader
from rl_trainer.distributed.channel import ShardRequester
from rl_trainer.distributed.rank_commands import RestoreCheckpoint, SnapshotState
from rl_trainer.model.learner import Learner

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    number: int
    """Of the snapshot, on all ranks."""
    state: State
    """With the metrics of all steps."""
    metrics_file: MetricsFile | None
    batches: list[Batch]


class Checkpointer:
    """Writes checkpoints beside training and makes them the run's durable state."""

    def __init__(
        self,
        job: Job,
        learner: Learner,
        *,
        durable: DurablePointer | None,
        committed: int,
        nonce: Callable[[], str] = lambda: secrets.token_hex(4),
    ) -> None:
        """Make the writer of one attempt.

        Args:
            job: with the epoch that this trainer holds.
            learner: whose state is written.
            durable: what is durable when the attempt begins.
            committed: steps of the run at that time. Metrics are not written for fewer steps: they
                would replace a longer file.
            nonce: makes names of folders unique within a step and epoch.
        """
        self._job, self._learner, self._nonce = job, learner, nonce
        self._durable, self._committed = durable, committed
        self._uploader: Uploader[_Pending] = Uploader(self._write, name="checkpointer")
        world = job.team.world
        self._part = PartWriter(job.stores.objects, rank=world.rank)
        self._requester: ShardRequester[WritePart, WrittenPart] = ShardRequester(
            world, self._part, written="checkpoint", clock=job.clock
        )
        self._number = 0
        off_policy = job.spec.algorithm.off_policy
        self._sweeper = Sweeper(
            job.stores,
            run=job.run,
            bounds=job.spec.lifecycle.retention,
            reusable_steps=off_policy.max_staleness if off_policy.max_trainings > 1 else 0,
        )
        self._aborted_at = job.clock()
        self._batches: list[Batch] = []
        """Of steps that no checkpoint holds yet; changed by the training thread alone."""
        self._submitted = durable.step if durable else 0
        self._metrics_file: MetricsFile | None = None

    def trained(self, batch: Batch) -> None:
        """Note a committed batch; the next checkpoint marks it durable."""
        self._batches.append(batch)

    def submit(self, progress: Progress) -> None:
        """Write the present state; returns after copying it.

        Raises the error of an earlier checkpoint.
        """
        assert progress.head is not None
        self._uploader.check()
        self._submitted = progress.step
        written = self._durable.step if self._durable else 0
        self._batches = [batch for batch in self._batches if batch.step > written]
        state = State(
            step=progress.step,
            head=progress.head,
            next_sequence=progress.next_sequence,
            totals=progress.totals,
            metrics=list(progress.metrics),
            controls=self._learner.controls,
            adapter=self._learner.policy.adapter,
        )
        self._snapshot()
        self._uploader.submit(
            _Pending(
                number=self._number,
                state=state,
                metrics_file=progress.metrics_file,
                batches=list(self._batches),
            )
        )

    def _snapshot(self) -> None:
        """Copy the state on all ranks, in place of a copy that still waits to be written."""
        waited = self._uploader.withdraw()
        if waited is not None:
            log.warning("a newer checkpoint replaces that of step %d", waited.state.step)
        self._number += 1
        command = SnapshotState(number=self._number, drop=waited.number if waited else 0)
        self._job.team.call(command, lambda: take_part(self._part, command, self._learner))

    def check(self) -> None:
        """Raise the error of an earlier checkpoint."""
        self._uploader.check()

    def finish(self, progress: Progress) -> None:
        """Make the run's last state durable, and delete from the bucket what is not needed.

        Also where no step was left to train: the previous trainer may have ended in the middle
        of its last checkpoint, e.g. after the upload, or before deleting older checkpoints.
        """
        if progress.step > self._submitted:
            self.submit(progress)
        self._uploader.flush(self._job.heartbeat)
        self._retire()
        self.sweep(last=True)

    def save(self, progress: Progress) -> None:
        """Make the present state durable before the process ends.

        It may be cut short: steps that are not durable are replayed from their batches.

        Args:
            progress: the lineage up to the weights in memory.
        """
        if progress.step > self._submitted:
            self.submit(progress)
        self._uploader.complete()

    def close(self, *, wait: bool) -> None:
        """End the thread; with ``wait``, after the queued checkpoints."""
        if not wait:
            self._requester.end()
        self._uploader.close(wait=wait)

    def _write(self, pending: _Pending) -> None:
        job, step, started = self._job, pending.state.step, self._job.clock()
        prefix = f"{job.prefix}checkpoints/{step:08d}-{job.epoch}-{self._nonce()}/"
        uploaded = self._upload(pending, prefix)
        pointer = DurablePointer(step=step, prefix=prefix, manifest_sha256=uploaded.manifest_sha256)
        job.stores.runs.make_durable(job.run, epoch=job.epoch, pointer=pointer)
        self._durable = pointer
        for batch in pending.batches:
            job.stores.batches.mark(batch, BatchState.DURABLE)
        log.info("step %d is durable after %.2f s", step, job.clock() - started)
        self._retire()
        self.sweep()

    def _upload(self, pending: _Pending, prefix: str) -> Uploaded:
        """Have all ranks write their parts, and commit them with the state."""
        job, objects = self._job, self._job.stores.objects
        request = WritePart(number=pending.number, prefix=prefix)
        written = self._requester.request_all([request] * job.team.world.size)
        files = [file for part in written for file in part.files]
        state = self._state(pending).model_dump_json().encode()
        files.append(artifacts.entry(STATE, state))
        objects.put(prefix + STATE, state)
        artifacts.check_uploaded(objects, prefix, files)
        manifest = Manifest(
            kind="checkpoint", run=job.run, epoch=job.epoch, step=pending.state.step, files=files
        )
        return artifacts.commit(objects, prefix, manifest)

    def _state(self, pending: _Pending) -> State:
        """The state with the last metrics; earlier ones are in a file."""
        job, state, file = self._job, pending.state, self._metrics_file or pending.metrics_file
        if state.step >= self._committed:
            file = self._metrics_file = report.write_metrics_if_due(
                job.stores.objects, job.prefix, state.metrics, epoch=job.epoch, written=file
            )
        later = state.metrics[file.steps if file else 0 :]
        return state.model_copy(update={"metrics": later, "earlier": file})

    def sweep(self, *, last: bool = False) -> None:
        """Delete documents beyond ``lifecycle.retention``; nothing is being written meanwhile.

        At the ``last`` checkpoint always, before that when the run has grown enough.

        Once an hour it also aborts old uploads that nobody will finish.
        """
        if self._job.clock() - self._aborted_at >= unfinished.PASS_SECONDS:
            unfinished.abort_old(self._job)
            self._aborted_at = self._job.clock()
        deleted = self._sweeper.sweep(epoch=self._job.epoch, only_if_due=not last)
        if not deleted.empty:
            log.info(
                "deleted %d batches, %d tasks and %d rollouts beyond spec.lifecycle.retention",
                len(deleted.batches),
                len(deleted.tasks),
                len(deleted.rollouts),
            )

    def _retire(self) -> None:
        if self._durable is None:
            return
        root = f"{self._job.prefix}checkpoints/"
        objects, keep = self._job.stores.objects, self._job.spec.training.checkpoint.keep_last
        expired = retention.expired_checkpoints(
            retention.folders(objects.list(root), root=root),
            durable=self._durable.prefix,
            keep_last=keep,
            epoch=self._job.epoch,
            bound=self._job.spec.lifecycle.retention.checkpoints,
            now=self._job.stores.mongo.now(),  # seconds off the bucket's clock do not matter
        )
        for folder in expired:
            objects.delete_prefix(folder.prefix)


def take_part(writer: PartWriter, command: SnapshotState, learner: Learner) -> None:
    """Carry out the command on this rank: free the dropped copy first, to bound memory."""
    writer.drop(command)
    writer.take(command, saved.copied(learner))


def restore(job: Job, learner: Learner, pointer: DurablePointer) -> Progress:
    """Put a checkpoint of this run into the learner.

    Raises:
        IntegrityError: a file is not the one that was written, or it is of another model.
        ObjectMissingError: a file is gone.
    """
    objects = job.stores.objects
    checkpoint = take(
        job, learner, objects, prefix=pointer.prefix, manifest_sha256=pointer.manifest_sha256
    )
    state = checkpoint.state
    file = state.earlier
    earlier = report.read_metrics(objects, job.prefix, file) if file else []
    return Progress(
        step=state.step,
        head=state.head,
        next_sequence=state.next_sequence,
        totals=state.totals,
        metrics=[*earlier, *state.metrics],
        metrics_file=file if earlier else None,
    )


def take(
    job: Job, learner: Learner, objects: Objects, *, prefix: str, manifest_sha256: str
) -> Saved:
    """Put a checkpoint of any run into the learner of every rank; each reads it for itself.

    Raises:
        IntegrityError, ObjectMissingError: as ``saved.read`` and ``saved.put_back`` do.
    """

    def own() -> Saved:
        checkpoint = saved.read(objects, prefix, manifest_sha256=manifest_sha256)
        saved.put_back(checkpoint, learner)
        return checkpoint

    command = RestoreCheckpoint(
        bucket=objects.bucket, prefix=prefix, manifest_sha256=manifest_sha256
    )
    return job.team.call(command, own)
