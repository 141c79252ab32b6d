"""What a checkpoint holds: copied from the learner, and put back into one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from rl_contracts.documents.base import Record
from rl_contracts.documents.manifest import AdapterEntry, Manifest
from rl_contracts.documents.run import Totals
from rl_contracts.documents.step_metrics import MetricsFile, StepMetrics
from rl_contracts.errors import IntegrityError
from rl_contracts.stores.files import artifacts
from rl_contracts.stores.objects import Objects
from rl_trainer.algorithm.kl.controller import Controls
from rl_trainer.checkpoint import stored
from rl_trainer.checkpoint.stored import AUXILIARY, MASTERS, MOMENTS
from rl_trainer.model import optimizer
from rl_trainer.model.learner import Learner
from rl_trainer.model.parallel import pieces
from rl_trainer.model.parallel.pieces import OwnPiece, StoredTensor

STATE = "state.json"


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
class Saved:
    """A checkpoint in the bucket; its tensors are read when they are put back."""

    tensors: Mapping[str, StoredTensor]
    state: State


def read(objects: Objects, prefix: str, *, manifest_sha256: str) -> Saved:
    """Open a checkpoint: its state, and where its tensors lie.

    Raises:
        IntegrityError: a file is not the one that was written, or it is no checkpoint.
        ObjectMissingError: a file is gone.
    """
    manifest = artifacts.manifest(objects, prefix, sha256=manifest_sha256)
    if manifest.kind != "checkpoint":
        raise IntegrityError(f"{prefix} holds a {manifest.kind}, no checkpoint")
    return Saved(
        tensors=stored.tensors(objects, prefix, manifest), state=state(objects, prefix, manifest)
    )


def state(objects: Objects, prefix: str, manifest: Manifest) -> State:
    """What a checkpoint holds besides tensors. Raises as ``read``."""
    files = [file for file in manifest.files if file.name == STATE]
    if not files:
        raise IntegrityError(f"{prefix} has no {STATE}")
    return State.model_validate_json(artifacts.read(objects, prefix, files[0]))


def put_back(checkpoint: Saved, learner: Learner) -> None:
    """Give the learner a checkpoint's weights, moments, critic, reference and adapted values.

    Each rank reads the pieces that hold its part, on whatever mesh they were written. One that
    trains nothing takes the weights alone, of whatever algorithm they are.

    Raises:
        IntegrityError: a piece is not what was written, or it is of another model or algorithm; the
            learner is then unusable.
        ObjectMissingError: a file is gone.
    """
    _check_adapter(checkpoint.state.adapter, learner.policy.adapter)
    present, masters = _tensors(learner), pieces.below(MASTERS, checkpoint.tensors)
    shapes = {name: tuple(tensor.shape) for name, tensor in present.items()}
    if {name: tensor.shape for name, tensor in masters.items()} != shapes:
        raise IntegrityError("the checkpoint is of another model")
    pieces.fill((tensor, masters[name]) for name, tensor in present.items())
    if not learner.trains:
        return
    moments = pieces.below(MOMENTS, checkpoint.tensors)
    try:
        optimizer.restore(learner.optimizer, learner.parameters, moments, learner.training)
        learner.restore_auxiliary(pieces.below(AUXILIARY, checkpoint.tensors))
    except (KeyError, RuntimeError) as error:
        raise IntegrityError(
            f"the checkpoint does not fit the algorithm's critic or reference: {error}"
        ) from error
    if checkpoint.state.controls is not None:
        learner.resume_controls(checkpoint.state.controls)


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


def copied(learner: Learner) -> dict[str, OwnPiece]:
    """What this rank keeps of the training state as it is now; every rank must ask.

    All ranks together keep it once, in about equal shares. Nothing is sent.
    """
    moments = optimizer.state(learner.optimizer, learner.parameters)
    state = {
        **pieces.under(MASTERS, _tensors(learner)),
        **pieces.under(MOMENTS, moments),
        **pieces.under(AUXILIARY, learner.auxiliary()),
    }
    return pieces.own_copies(state, learner.world)


def _tensors(learner: Learner) -> dict[str, Tensor]:
    module = learner.policy.module
    if learner.policy.adapter is not None:
        return dict(learner.parameters)
    return {
        name: tensor
        for name, tensor in module.state_dict().items()
        if name not in module.all_tied_weights_keys
    }
