"""What a checkpoint holds, read from the bucket and put back."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from rl_contracts.documents.base import Record
from rl_contracts.documents.run import StepMetrics, Totals
from rl_contracts.errors import IntegrityError
from rl_contracts.stores.objects import Objects
from rl_trainer import artifacts, optimizer
from rl_trainer.kl.controller import Controls
from rl_trainer.learner import Learner

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
    controls: Controls | None = None
    """None: as at the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint as it was read."""

    masters: dict[str, Tensor]
    moments: dict[str, Tensor]
    auxiliary: dict[str, Tensor]
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
            masters=load_file(folder / MASTERS),
            moments=load_file(folder / MOMENTS),
            auxiliary=load_file(path) if path.exists() else {},
            state=State.model_validate_json((folder / STATE).read_bytes()),
        )


def put_back(found: Saved, learner: Learner) -> None:
    """Give the learner a checkpoint's weights, moments, coefficients, critic and reference.

    Raises:
        IntegrityError: it is of another model or algorithm; the learner is then unusable.
    """
    present = _tensors(learner)
    shapes = {name: one.shape for name, one in present.items()}
    if {name: one.shape for name, one in found.masters.items()} != shapes:
        raise IntegrityError("the checkpoint is of another model")
    with torch.no_grad():
        for name, tensor in present.items():
            tensor.copy_(found.masters[name])
    try:
        optimizer.restore(learner.optimizer, learner.parameters, found.moments)
        learner.restore_auxiliary(found.auxiliary)
    except (KeyError, RuntimeError) as error:
        raise IntegrityError(
            f"the checkpoint does not fit the algorithm's critic or reference: {error}"
        ) from error
    if found.state.controls is not None:
        learner.controls = found.state.controls


def masters(learner: Learner) -> dict[str, Tensor]:
    """The policy's tensors copied to the CPU, tied ones once."""
    return {
        name: tensor.detach().to("cpu", copy=True) for name, tensor in _tensors(learner).items()
    }


def _tensors(learner: Learner) -> dict[str, Tensor]:
    module = learner.policy.module
    return {
        name: tensor
        for name, tensor in module.state_dict().items()
        if name not in module.all_tied_weights_keys
    }
