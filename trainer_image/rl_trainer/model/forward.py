"""Forward passes over samples: microbatches, and values without gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rl_trainer.algorithm.packing import Packed, Row, collate, pack
from rl_trainer.algorithm.samples import Sample, with_tokens
from rl_trainer.distributed.division import shares
from rl_trainer.distributed.world import World
from rl_trainer.model import sharding


def microbatches(
    samples: Sequence[Sample],
    *,
    max_tokens: int,
    max_sequences: int | None,
    work: Callable[[int], int],
    device: torch.device,
    world: World,
) -> list[Packed]:
    """This data rank's share of the samples, packed and laid out on the device.

    Tokens that were left out are read for this share alone.

    Data ranks have about as much work each, and equally many microbatches: gathering a layer takes
    all of them. One that has fewer is given fillers, which cost a pass over the shortest sample of
    its share.

    Args:
        samples: of all data ranks.
        max_tokens: of a microbatch.
        max_sequences: of a microbatch; None leaves it to the tokens.
        work: of a sequence of so many tokens, by which they are divided.
        device: where to.
        world: the ranks.
    """
    lengths = [len(sample) for sample in samples]
    packed = [
        _packed(lengths, share, max_tokens=max_tokens, max_sequences=max_sequences)
        for share in shares([work(length) for length in lengths], parts=world.data_ranks)
    ]
    mine, most = packed[world.data_rank], max(map(len, packed))
    own = [index for row in mine for index in row]
    candidates = own or range(len(lengths))
    shortest = min(candidates, key=lambda index: (lengths[index], index))
    fills = len(mine) < most
    samples = with_tokens(samples, [*own, *([] if own or not fills else [shortest])])
    batches = [collate(samples, row).to(device) for row in mine]
    if fills:
        filler = collate(samples, (shortest,), filler=True).to(device)
        batches += [filler] * (most - len(mine))
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
