"""Durable training state: everything that the next step depends on, manifest last.

Random state is no part of it: it is a function of seed and step (see ``learner``).
"""

from __future__ import annotations

import logging
import secrets
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from rl_contracts.documents.base import Record
from rl_contracts.documents.batch import Batch, BatchState
from rl_contracts.documents.run import DurablePointer, StepMetrics, Totals
from rl_trainer import artifacts, optimizer, report, retention
from rl_trainer.artifacts import Origin
from rl_trainer.job import Job, Progress
from rl_trainer.learner import Learner
from rl_trainer.uploads import Uploader

log = logging.getLogger(__name__)

MASTERS, MOMENTS, STATE = "masters.safetensors", "optimizer.safetensors", "state.json"


class State(Record):
    """What a checkpoint holds besides tensors."""

    step: int
    head: str
    next_sequence: int
    totals: Totals
    metrics: list[StepMetrics]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    masters: dict[str, Tensor]
    moments: dict[str, Tensor]
    state: State
    batches: list[Batch]


class Checkpointer:
    """Writes checkpoints beside training and makes them the run's durable state."""

    def __init__(
        self,
        job: Job,
        learner: Learner,
        *,
        nonce: Callable[[], str] = lambda: secrets.token_hex(4),
    ) -> None:
        self._job, self._learner, self._nonce = job, learner, nonce
        self._uploader: Uploader[_Pending] = Uploader(self._write, name="checkpointer")
        self._batches: list[Batch] = []

    def trained(self, batch: Batch) -> None:
        """Note a committed batch, to be marked durable with the next checkpoint."""
        self._batches.append(batch)

    def submit(self, progress: Progress) -> None:
        """Write the present state; returns after copying it.

        Raises what an earlier checkpoint failed of.
        """
        assert progress.head is not None
        state = State(
            step=progress.step,
            head=progress.head,
            next_sequence=progress.next_sequence,
            totals=progress.totals,
            metrics=list(progress.metrics),
        )
        learner = self._learner
        self._uploader.submit(
            _Pending(
                masters=_masters(learner),
                moments=optimizer.state(learner.optimizer, learner.parameters),
                state=state,
                batches=list(self._batches),
            )
        )

    def check(self) -> None:
        """Raise what an earlier checkpoint failed of."""
        self._uploader.check()

    def flush(self) -> None:
        """Wait until the last submitted state is durable."""
        self._uploader.flush(self._job.heartbeat)

    def close(self, *, wait: bool) -> None:
        """Stop writing."""
        self._uploader.close(wait=wait)

    def _write(self, pending: _Pending) -> None:
        job, step, started = self._job, pending.state.step, self._job.clock()
        root = f"{job.prefix}checkpoints/"
        prefix = f"{root}{step:08d}-{job.epoch}-{self._nonce()}/"
        origin = Origin(kind="checkpoint", run=job.run, epoch=job.epoch, step=step)
        with tempfile.TemporaryDirectory(dir=job.folder) as name:
            folder = Path(name)
            save_file(pending.masters, folder / MASTERS)
            save_file(pending.moments, folder / MOMENTS)
            (folder / STATE).write_text(pending.state.model_dump_json())
            uploaded = artifacts.upload(job.stores.objects, folder, prefix=prefix, origin=origin)
        pointer = DurablePointer(
            step=step, prefix=prefix, manifest_sha256=uploaded.manifest_sha256
        )  # fmt: skip
        job.stores.runs.make_durable(job.run, epoch=job.epoch, pointer=pointer)
        for batch in pending.batches:
            job.stores.batches.mark(batch, BatchState.DURABLE)
        self._batches = [one for one in self._batches if one.step > step]
        report.write_metrics(job.stores.objects, job.prefix, pending.state.metrics)
        log.info("step %d is durable after %.2f s", step, job.clock() - started)
        self._retire(root, durable=prefix)

    def _retire(self, root: str, *, durable: str) -> None:
        objects, keep = self._job.stores.objects, self._job.spec.training.checkpoint.keep_last
        found = retention.folders((one.key for one in objects.list(root)), root=root)
        for folder in retention.expired_checkpoints(
            found, durable=durable, keep_last=keep, epoch=self._job.epoch
        ):
            objects.delete_prefix(folder.prefix)


def restore(job: Job, learner: Learner, pointer: DurablePointer) -> Progress:
    """Put a checkpoint's weights and moments into the learner.

    Raises:
        IntegrityError: a file is not the one that was written.
        ObjectMissingError: a file is gone.
    """
    with tempfile.TemporaryDirectory(dir=job.folder) as name:
        folder = Path(name)
        artifacts.download(
            job.stores.objects,
            folder,
            prefix=pointer.prefix,
            manifest_sha256=pointer.manifest_sha256,
        )
        masters = load_file(folder / MASTERS)
        moments = load_file(folder / MOMENTS)
        state = State.model_validate_json((folder / STATE).read_bytes())
    present = _tensors(learner)
    assert masters.keys() == present.keys(), "the checkpoint is of another model"
    with torch.no_grad():
        for key, tensor in present.items():
            tensor.copy_(masters[key])
    optimizer.restore(learner.optimizer, learner.parameters, moments)
    return Progress(
        step=state.step,
        head=state.head,
        next_sequence=state.next_sequence,
        totals=state.totals,
        metrics=state.metrics,
    )


def _tensors(learner: Learner) -> dict[str, Tensor]:
    module = learner.policy.module
    return {
        name: tensor
        for name, tensor in module.state_dict().items()
        if name not in module.all_tied_weights_keys
    }


def _masters(learner: Learner) -> dict[str, Tensor]:
    return {
        name: tensor.detach().to("cpu", copy=True) for name, tensor in _tensors(learner).items()
    }
