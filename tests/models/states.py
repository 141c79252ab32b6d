"""Training states put together from what all ranks keep of them, and put back from memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from torch import Tensor

from rl_trainer.checkpoint import saved
from rl_trainer.distributed.world import ALONE, World
from rl_trainer.model.learner import Learner
from rl_trainer.model.parallel import pieces, spans
from rl_trainer.model.parallel.pieces import OwnPiece, Piece, StoredTensor


def state(learner: Learner) -> dict[str, Tensor]:
    """All that a checkpoint would hold, whole, on every rank."""
    return together(learner.world.gather(saved.copied(learner)))


def whole(tensors: Mapping[str, Tensor], world: World = ALONE) -> dict[str, Tensor]:
    """Copies of tensors that may be divided, whole on every rank."""
    return together(world.gather(pieces.own_copies(tensors, world)))


def together(parts: Iterable[Mapping[str, OwnPiece]]) -> dict[str, Tensor]:
    """The tensors of which each rank kept some; an error where one is not kept exactly once."""
    kept: dict[str, list[OwnPiece]] = {}
    for part in parts:
        for name, piece in part.items():
            kept.setdefault(name, []).append(piece)
    return {name: _whole(each) for name, each in kept.items()}


def _whole(kept: list[OwnPiece]) -> Tensor:
    first = kept[0]
    parts = tuple(Piece(piece.spans, partial(_numbers, piece)) for piece in kept)
    stored = StoredTensor(first.shape, first.numbers.dtype, parts)
    assert sum(spans.count(piece.spans) for piece in kept) == spans.count(spans.whole(first.shape))
    return stored.read(spans.whole(first.shape)).clone()


def _numbers(piece: OwnPiece) -> Tensor:
    return piece.numbers


def stored(tensors: Mapping[str, Tensor]) -> dict[str, StoredTensor]:
    """Tensors as if they were read from a checkpoint."""
    copies = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    return {
        name: StoredTensor(
            tuple(copy.shape),
            copy.dtype,
            (Piece(spans.whole(copy.shape), copy.clone),),
        )
        for name, copy in copies.items()
    }


def section(name: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a section of a state (``stored.MASTERS`` and so on), by their own names."""
    return {
        key.removeprefix(name): tensor for key, tensor in tensors.items() if key.startswith(name)
    }
