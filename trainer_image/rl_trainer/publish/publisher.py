"""Publishes policies: a copy of the weights now, everything else beside training.

The pointer in the run document moves last and by the epoch; numbers are never used twice.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from rl_contracts.documents.manifest import PolicyRecord
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.ids import RunId, policy_id
from rl_contracts.spec.storage import Delta
from rl_trainer.context.job import Job
from rl_trainer.context.uploads import Uploader
from rl_trainer.distributed import rank_commands
from rl_trainer.distributed.channel import ShardRequester
from rl_trainer.model.policy import Policy
from rl_trainer.publish import broadcast
from rl_trainer.publish.broadcast import Base, Sent
from rl_trainer.publish.handover import policy_files
from rl_trainer.publish.policy_collector import PolicyCollector
from rl_trainer.publish.policy_shards import PolicyShards, encoders, take

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    step: int
    number: int
    """Of the snapshot, on all ranks."""


class Unpublished:
    """Stands for a publisher where no sampler needs policies (nothing is sampled)."""

    version = 0

    def submit(self, *, step: int) -> None:
        """Do nothing."""

    def require(self, *, step: int) -> None:
        """Do nothing."""

    def settled(self) -> int:
        """No version."""
        return self.version

    def check(self) -> None:
        """Do nothing."""

    def close(self, *, wait: bool) -> None:
        """Do nothing."""


class Publisher:
    """The run's policies, seen from rank 0 of the trainer that makes them.

    Each rank holds at most three copies of the tensors that it publishes: one being published, one
    that waits, and the last published one, which the next delta starts from (none with
    ``delta.anchorEvery: 1``).
    """

    def __init__(
        self,
        job: Job,
        policy: Policy,
        *,
        nonce: Callable[[], str] = lambda: secrets.token_hex(4),
    ) -> None:
        self._job, self._policy, self._nonce = job, policy, nonce
        self._uploader: Uploader[_Pending] = Uploader(self._publish, name="publisher")
        self._files = policy_files(job.stores.objects, job.weights_folder)
        # What is handed over in the pod is linked, not sent: a delta would only have to be applied.
        local = job.weights_folder is not None
        self._delta = Delta(anchor_every=1) if local else job.spec.weight_sync.transport.delta
        self._executor = encoders()
        self._shards = PolicyShards(self._files, self._executor)
        self._requester = ShardRequester(
            job.team.world, self._shards, written="policy", clock=job.clock
        )
        self._collector = PolicyCollector(
            job.stores,
            run=job.run,
            epoch=job.epoch,
            keep_last=job.spec.weight_sync.keep_last,
            bound=job.spec.lifecycle.retention.policies,
        )
        self._submitted = -1
        self._number = 0
        self._base: Base | None = None
        self.latest: PolicyPointer | None = None
        """Newest policy of this epoch that samplers can see."""

    @property
    def version(self) -> int:
        """Number of the newest published policy of this epoch; 0 before the first."""
        return self.latest.version if self.latest else 0

    def submit(self, *, step: int) -> None:
        """Publish the present weights, which contain ``step`` steps; returns after copying them.

        Raises the error of an earlier publication.
        """
        self._uploader.check()
        waited = self._uploader.withdraw()
        if waited is not None:
            log.warning(
                "the policy of step %d replaces that of step %d, which was waiting for its upload",
                step,
                waited.step,
            )
        self._number += 1
        command = rank_commands.SnapshotShard(
            number=self._number, drop=waited.number if waited else 0
        )
        precision, team = self._job.spec.training.precision, self._job.team
        team.call(
            command,
            lambda: take(
                self._shards, command, self._policy, precision=precision, world=team.world
            ),
        )
        self._uploader.submit(_Pending(step=step, number=self._number))
        self._submitted = step

    def require(self, *, step: int) -> PolicyPointer:
        """Publish the present weights unless they are, and wait until samplers can see them."""
        if self._submitted != step:
            self.submit(step=step)
        self._uploader.flush(self._job.heartbeat)
        assert self.latest is not None
        assert self.latest.step == step
        return self.latest

    def settled(self) -> int:
        """Wait until nothing is being published; the newest version that samplers can see."""
        self._uploader.flush(self._job.heartbeat)
        return self.version

    def check(self) -> None:
        """Raise the error of an earlier publication."""
        self._uploader.check()

    def close(self, *, wait: bool) -> None:
        """End the thread; with ``wait``, after the queued policies."""
        if not wait:
            self._requester.end()
        self._uploader.close(wait=wait)
        self._executor.shutdown(wait=wait, cancel_futures=True)

    def _publish(self, pending: _Pending) -> None:
        job, started = self._job, self._job.clock()
        version = job.stores.runs.reserve_version(job.run, epoch=job.epoch)
        prefix = f"{job.prefix}policies/{version:08d}-{job.epoch}-{self._nonce()}/"
        pointer = PolicyPointer(
            version=version, epoch=job.epoch, step=pending.step, prefix=prefix, manifest_sha256=""
        )
        sent = broadcast.send(
            self._files,
            self._requester.request_all,
            ranks=job.team.world.size,
            number=pending.number,
            pointer=pointer,
            run=job.run,
            base=self._base,
            delta=self._delta,
            adapter=self._policy.served_adapter,
        )
        pointer = pointer.model_copy(update={"manifest_sha256": sent.manifest_sha256})
        record = self._record(pointer, sent, seconds=job.clock() - started)
        job.stores.policies.put([record])
        job.stores.runs.publish(job.run, epoch=job.epoch, pointer=pointer)
        self.latest, self._base = pointer, sent.base
        job.traces.published(version=version, step=pending.step, seconds=job.clock() - started)
        broadcast.keep_base(self._requester.request_all, ranks=job.team.world.size, base=sent.base)
        log.info(
            "published policy %d of step %d (%s, %d bytes) in %.2f s",
            version,
            pending.step,
            sent.content,
            sent.size_bytes,
            record.publish_seconds,
        )
        self._collector.collect()

    def _record(self, pointer: PolicyPointer, sent: Sent, *, seconds: float) -> PolicyRecord:
        job = self._job
        return PolicyRecord(
            id=policy_id(RunId(job.run), pointer.version, job.epoch),
            run=job.run,
            version=pointer.version,
            epoch=job.epoch,
            step=pointer.step,
            parent=self.version,
            prefix=pointer.prefix,
            manifest_sha256=pointer.manifest_sha256,
            weights_sha256=sent.weights_sha256,
            size_bytes=sent.size_bytes,
            published_at=job.stores.mongo.now(),
            publish_seconds=seconds,
            content=sent.content,
            base_version=sent.base_version,
        )
