"""Forward passes over samples: microbatches, and values without gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rl_trainer.packing import Packed, collate, pack
from rl_trainer.samples import Sample


def microbatches(
    samples: Sequence[Sample],
    *,
    max_tokens: int,
    max_sequences: int | None,
    device: torch.device,
) -> list[Packed]:
    """Samples packed and laid out on the device."""
    packed = pack([len(one) for one in samples], max_tokens=max_tokens, max_sequences=max_sequences)
    return [collate(samples, rows).to(device) for rows in packed]


def values(
    module: torch.nn.Module, batches: Sequence[Packed], compute: Callable[[Packed], Tensor]
) -> list[Tensor]:
    """What ``compute`` gives for each sample's generated tokens, on the CPU, in their order.

    Args:
        module: put into evaluation for the while, and back into training.
        batches: of all samples.
        compute: ``[N]`` values of a microbatch's generated tokens; runs without gradient.
    """
    found: dict[int, Tensor] = {}
    module.eval()
    with torch.no_grad():
        for packed in batches:
            for index, part in packed.split(compute(packed)):
                found[index] = part.cpu()
    module.train()
    return [found[index] for index in range(len(found))]
