"""What a checkpoint holds, read from the bucket and put back."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from rl_contracts.documents.base import Record
from rl_contracts.documents.manifest import AdapterEntry
from rl_contracts.documents.run import Totals
from rl_contracts.documents.step_metrics import MetricsFile, StepMetrics
from rl_contracts.errors import IntegrityError
from rl_contracts.stores.files import artifacts
from rl_contracts.stores.objects import Objects
from rl_trainer.algorithm.kl.controller import Controls
from rl_trainer.model import optimizer
from rl_trainer.model.learner import Learner
from rl_trainer.model.parallel import sharding

MASTERS, MOMENTS, STATE = "masters.safetensors", "optimizer.safetensors", "state.json"
AUXILIARY = "auxiliary.safetensors"
"""Critic and refreshed reference, where there are any."""


class State(Record):
    """What a checkpoint holds besides tensors."""

    step: int
    head: str
    next_sequence: int
    totals: Totals
    metrics: list[StepMetrics]
    """Of the steps after those in ``earlier``; without it, of all steps."""
    earlier: MetricsFile | None = None
    controls: Controls | None = None
    """None: as at the start."""
    adapter: AdapterEntry | None = None
    """Where the tensors are an adapter's: whose. The model itself is not in the checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensors:
    """What a checkpoint holds in tensors, on the CPU."""

    masters: dict[str, Tensor]
    moments: dict[str, Tensor]
    auxiliary: dict[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint in memory, read from the bucket."""

    tensors: Tensors
    state: State


def read(objects: Objects, prefix: str, *, manifest_sha256: str, scratch: Path) -> Saved:
    """Fetch a checkpoint, every file verified.

    Raises:
        IntegrityError: a file is not the one that was written, or it is no checkpoint.
        ObjectMissingError: a file is gone.
    """
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        folder = Path(name)
        manifest = artifacts.download(
            objects, folder, prefix=prefix, manifest_sha256=manifest_sha256
        )
        if manifest.kind != "checkpoint":
            raise IntegrityError(f"{prefix} holds a {manifest.kind}, no checkpoint")
        path = folder / AUXILIARY
        return Saved(
            tensors=Tensors(
                masters=load_file(folder / MASTERS),
                moments=load_file(folder / MOMENTS),
                auxiliary=load_file(path) if path.exists() else {},
            ),
            state=State.model_validate_json((folder / STATE).read_bytes()),
        )


def put_back(checkpoint: Saved, learner: Learner) -> None:
    """Give the learner a checkpoint's weights, moments, coefficients, critic and reference.

    One that trains nothing takes the weights alone, of whatever algorithm they are.

    Raises:
        IntegrityError: it is of another model or algorithm; the learner is then unusable.
    """
    _check_adapter(checkpoint.state.adapter, learner.policy.adapter)
    present, tensors = _tensors(learner), checkpoint.tensors
    shapes = {name: tensor.shape for name, tensor in present.items()}
    if {name: tensor.shape for name, tensor in tensors.masters.items()} != shapes:
        raise IntegrityError("the checkpoint is of another model")
    for name, tensor in present.items():
        sharding.fill(tensor, tensors.masters[name])
    if not learner.trains:
        return
    try:
        optimizer.restore(learner.optimizer, learner.parameters, tensors.moments, learner.training)
        learner.restore_auxiliary(tensors.auxiliary)
    except (KeyError, RuntimeError) as error:
        raise IntegrityError(
            f"the checkpoint does not fit the algorithm's critic or reference: {error}"
        ) from error
    if checkpoint.state.controls is not None:
        learner.controls = checkpoint.state.controls


def _check_adapter(saved: AdapterEntry | None, wanted: AdapterEntry | None) -> None:
    if (saved is None) != (wanted is None):
        held, asked = ("all weights" if entry is None else "adapters" for entry in (saved, wanted))
        raise IntegrityError(f"the checkpoint holds {held}, and {asked} are trained")
    if saved is None or wanted is None:
        return
    for name in ("base_sha256", "rank", "alpha", "targets"):
        held, asked = getattr(saved, name), getattr(wanted, name)
        if held != asked:
            raise IntegrityError(f"the checkpoint is of an adapter with {name} {held}, not {asked}")


def copied(learner: Learner) -> Tensors:
    """The training state as it is now; every rank must ask, rank 0 has it."""
    return Tensors(
        masters=sharding.copies(_tensors(learner), learner.world),
        moments=optimizer.state(learner.optimizer, learner.parameters, world=learner.world),
        auxiliary=learner.auxiliary(),
    )


def _tensors(learner: Learner) -> dict[str, Tensor]:
    module = learner.policy.module
    if learner.policy.adapter is not None:
        return dict(learner.parameters)
    return {
        name: tensor
        for name, tensor in module.state_dict().items()
        if name not in module.all_tied_weights_keys
    }
