"""Publishes policies: a copy of the weights now, everything else beside training.

The pointer in the run document moves last and by the epoch; numbers are never used twice.
"""

from __future__ import annotations

import logging
import secrets
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rl_contracts.documents.manifest import PolicyRecord
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.ids import RunId, policy_id
from rl_trainer import artifacts, weights
from rl_trainer.artifacts import Origin
from rl_trainer.job import Job
from rl_trainer.model import Policy
from rl_trainer.uploads import Uploader
from rl_trainer.weights import Snapshot

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    step: int
    tensors: Snapshot


class Publisher:
    """The run's policies, seen from the trainer that makes them."""

    def __init__(
        self,
        job: Job,
        policy: Policy,
        *,
        nonce: Callable[[], str] = lambda: secrets.token_hex(4),
    ) -> None:
        self._job, self._policy, self._nonce = job, policy, nonce
        self._uploader: Uploader[_Pending] = Uploader(self._publish, name="publisher")
        self._submitted = -1
        self.latest: PolicyPointer | None = None
        """Newest policy of this epoch that samplers can see."""

    @property
    def version(self) -> int:
        """Number of the newest published policy of this epoch; 0 before the first."""
        return self.latest.version if self.latest else 0

    def submit(self, *, step: int) -> None:
        """Publish the present weights, which contain ``step`` steps; returns after copying them.

        Raises what an earlier publication failed of.
        """
        precision = self._job.spec.training.precision
        tensors = weights.snapshot(self._policy, precision=precision)
        self._uploader.submit(_Pending(step=step, tensors=tensors))
        self._submitted = step

    def require(self, *, step: int) -> PolicyPointer:
        """Publish the present weights unless they are, and wait until samplers can see them."""
        if self._submitted != step:
            self.submit(step=step)
        self._uploader.flush(self._job.heartbeat)
        assert self.latest is not None
        assert self.latest.step == step
        return self.latest

    def check(self) -> None:
        """Raise what an earlier publication failed of."""
        self._uploader.check()

    def close(self, *, wait: bool) -> None:
        """Stop publishing."""
        self._uploader.close(wait=wait)

    def _publish(self, pending: _Pending) -> None:
        job, started = self._job, self._job.clock()
        version = job.stores.runs.reserve_version(job.run, epoch=job.epoch)
        origin = Origin(
            kind="policy", run=job.run, epoch=job.epoch, step=pending.step, version=version
        )
        prefix = f"{job.prefix}policies/{version:08d}-{job.epoch}-{self._nonce()}/"
        with tempfile.TemporaryDirectory(dir=job.folder) as folder:
            weights.write(pending.tensors, Path(folder))
            uploaded = artifacts.upload(
                job.stores.objects, Path(folder), prefix=prefix, origin=origin
            )
        record = PolicyRecord(
            id=policy_id(RunId(job.run), version, job.epoch),
            run=job.run,
            version=version,
            epoch=job.epoch,
            step=pending.step,
            parent=self.version,
            prefix=prefix,
            manifest_sha256=uploaded.manifest_sha256,
            size_bytes=uploaded.size_bytes,
            published_at=job.stores.mongo.now(),
            publish_seconds=job.clock() - started,
        )
        pointer = PolicyPointer(
            version=version,
            epoch=job.epoch,
            step=pending.step,
            prefix=prefix,
            manifest_sha256=uploaded.manifest_sha256,
        )
        job.stores.policies.put([record])
        job.stores.runs.publish(job.run, epoch=job.epoch, pointer=pointer)
        self.latest = pointer
        log.info("published policy %d of step %d in %.2f s", version, pending.step,
                 record.publish_seconds)  # fmt: skip
        self._retire(record)

    def _retire(self, newest: PolicyRecord) -> None:
        """Delete versions beyond ``weightSync.keepLast``, objects before their record."""
        records = self._job.stores.policies.of_run(self._job.run)
        records.sort(key=lambda record: record.version)
        kept = self._job.spec.weight_sync.keep_last
        for record in records[:-kept]:
            assert record.version < newest.version
            self._job.stores.objects.delete_prefix(record.prefix)
            self._job.stores.policies.delete(record.id)
