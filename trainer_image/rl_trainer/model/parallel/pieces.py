"""A model's state in pieces: each rank copies its own, and reads those that hold its part.

What was copied on one mesh can be read on any other, because a piece says where it lies in its
tensor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from rl_contracts.errors import IntegrityError
from rl_trainer.distributed.world import ALONE, World
from rl_trainer.model.parallel import spans
from rl_trainer.model.parallel.sharding import part
from rl_trainer.model.parallel.spans import Layout, Spans

AT_A_TIME = 4
"""Tensors of which a rank reads its parts at a time."""


@dataclass(frozen=True, slots=True)
class OwnPiece:
    """What one rank keeps of a tensor, on the CPU."""

    shape: tuple[int, ...]
    """Of the whole tensor."""
    spans: Spans
    numbers: Tensor


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a stored tensor."""

    spans: Spans
    load: Callable[[], Tensor]
    """Gives its numbers on the CPU; raises what its store raises."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor that is read where it is needed; its pieces do not overlap."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    pieces: tuple[Piece, ...]

    def read(self, wanted: Spans) -> Tensor:
        """A part of it, on the CPU, of any shape; at most one piece is held beside it.

        Raises:
            IntegrityError: no piece has some of it.
            RLError: what the pieces' store raises.
        """
        for piece in self.pieces:
            if piece.spans == wanted:
                return piece.load()
        numbers = torch.empty(spans.lengths(wanted), dtype=self.dtype)
        read = 0
        for piece in self.pieces:
            if spans.overlap(wanted, piece.spans):
                read += spans.copy(numbers, wanted, piece.load(), piece.spans)
        if read != numbers.numel():
            raise IntegrityError(f"{read} of {numbers.numel()} numbers of a part are stored")
        return numbers


def own_copies(named: Mapping[str, Tensor], world: World) -> dict[str, OwnPiece]:
    """Copy what this rank keeps of each tensor; a collective call that sends no numbers.

    All ranks together keep every tensor once: of ranks that hold the same part, the one that keeps
    the fewest bytes so far.

    Args:
        named: the same names on all ranks. What is not divided is the same on all of them.
        world: the ranks.
    """
    layout, kept = Layout(world), [0] * world.size
    copied = {}
    for name, source in named.items():
        for held, ranks in _holders(layout.of_ranks(source)).items():
            keeper = min(ranks, key=lambda rank: (kept[rank], rank))
            kept[keeper] += spans.count(held) * source.element_size()
            if keeper == world.rank:
                numbers = part(source.detach()).to("cpu", copy=True).contiguous()
                copied[name] = OwnPiece(tuple(source.shape), held, numbers)
    return copied


def _holders(parts: Iterable[Spans]) -> dict[Spans, list[int]]:
    """The ranks that hold each part that is not empty."""
    holders: dict[Spans, list[int]] = {}
    for rank, held in enumerate(parts):
        if spans.count(held):
            holders.setdefault(held, []).append(rank)
    return holders


def under(section: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by their names in a state with sections."""
    return {f"{section}{name}": tensor for name, tensor in tensors.items()}


def below(section: str, tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """The tensors of a section by their own names."""
    return {
        name.removeprefix(section): tensor
        for name, tensor in tensors.items()
        if name.startswith(section)
    }


def fill(targets: Iterable[tuple[Tensor, StoredTensor]]) -> None:
    """Write stored tensors into others, of which each rank may have a part; no collective call.

    Raises:
        RuntimeError: shapes differ.
        RLError: as ``StoredTensor.read``.
    """
    layout = Layout(ALONE)

    def reads() -> Iterator[tuple[Tensor, Callable[[], Tensor]]]:
        for target, stored in targets:
            if tuple(target.shape) != stored.shape:
                raise RuntimeError(f"{list(stored.shape)} are stored, not {list(target.shape)}")
            wanted = layout.own(target)
            yield target, partial(stored.read, wanted)

    for target, numbers in _ahead(reads()):
        with torch.no_grad():
            local = part(target)
            local.copy_(numbers.view(local.shape))


def _ahead(
    reads: Iterator[tuple[Tensor, Callable[[], Tensor]]],
) -> Iterator[tuple[Tensor, Tensor]]:
    """Targets with their numbers, in order; the next ones are read meanwhile."""
    waiting: deque[tuple[Tensor, Future[Tensor]]] = deque()
    with ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="read-piece") as executor:
        try:
            for target, read in reads:
                waiting.append((target, executor.submit(read)))
                if len(waiting) > AT_A_TIME:
                    yield _next(waiting)
            while waiting:
                yield _next(waiting)
        finally:
            executor.shutdown(cancel_futures=True)


def _next(waiting: deque[tuple[Tensor, Future[Tensor]]]) -> tuple[Tensor, Tensor]:
    target, numbers = waiting.popleft()
    return target, numbers.result()
