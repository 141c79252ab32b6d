"""Forward passes over samples: microbatches, and values without gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rl_trainer.algorithm.packing import Packed, Row, collate, pack
from rl_trainer.algorithm.samples import Sample, with_tokens
from rl_trainer.distributed.division import shares
from rl_trainer.distributed.world import World
from rl_trainer.model.parallel import sharding


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one data rank computes of samples, as indices among them."""

    rows: list[Row]
    """Its microbatches."""
    fillers: int
    """Microbatches that it lacks to have as many as the others."""
    shortest: int
    """The sample that they repeat."""

    @property
    def indices(self) -> list[int]:
        """The samples whose tokens it needs."""
        own = [index for row in self.rows for index in row]
        return own if own or not self.fillers else [self.shortest]


def share(
    samples: Sequence[Sample],
    *,
    max_tokens: int,
    max_sequences: int | None,
    work: Callable[[int], int],
    world: World,
) -> Share:
    """This data rank's share of the samples, packed; every rank divides them in the same way.

    Data ranks have about as much work each, and equally many microbatches: gathering a layer takes
    all of them. One that has fewer is given fillers, which cost a pass over the shortest sample of
    its share.

    Args:
        samples: of all data ranks; at least one.
        max_tokens: of a microbatch.
        max_sequences: of a microbatch; None leaves it to the tokens.
        work: of a sequence of so many tokens, by which they are divided.
        world: the ranks.
    """
    lengths = [len(sample) for sample in samples]
    packed = [
        _packed(lengths, part, max_tokens=max_tokens, max_sequences=max_sequences)
        for part in shares([work(length) for length in lengths], parts=world.data_ranks)
    ]
    mine = packed[world.data_rank]
    candidates = [index for row in mine for index in row] or range(len(lengths))
    return Share(
        rows=mine,
        fillers=max(map(len, packed)) - len(mine),
        shortest=min(candidates, key=lambda index: (lengths[index], index)),
    )


def microbatches(samples: Sequence[Sample], share: Share, *, device: torch.device) -> list[Packed]:
    """A share of the samples laid out on the device; tokens are read for this share alone."""
    samples = with_tokens(samples, share.indices)
    batches = [collate(samples, row).to(device) for row in share.rows]
    if share.fillers:
        filler = collate(samples, (share.shortest,), filler=True).to(device)
        batches += [filler] * share.fillers
    return batches


def _packed(
    lengths: Sequence[int], share: Sequence[int], *, max_tokens: int, max_sequences: int | None
) -> list[Row]:
    """Microbatches of a share of the samples, by their indices among all."""
    packed = pack(
        [lengths[index] for index in share], max_tokens=max_tokens, max_sequences=max_sequences
    )
    return [tuple(share[member] for member in row) for row in packed]


def values(
    module: torch.nn.Module,
    batches: Sequence[Packed],
    compute: Callable[[Packed], Tensor],
    *,
    world: World,
) -> list[Tensor]:
    """What ``compute`` gives for each sample's generated tokens, on the CPU, in their order.

    Every rank computes its share and has them all in the end.

    Args:
        module: put into evaluation for the while, and back into training.
        batches: this rank's.
        compute: ``[N]`` values of a microbatch's generated tokens; runs without gradient.
        world: the ranks.
    """
    own: dict[int, Tensor] = {}
    module.eval()
    with torch.no_grad():
        for packed in batches:
            computed = compute(packed)
            if not packed.filler:
                own |= {index: part.cpu() for index, part in packed.split(computed)}
    sharding.rest(module)
    module.train()
    together: dict[int, Tensor] = {}
    for part in world.gather_shares(own):
        together |= part
    return [together[index] for index in range(len(together))]
