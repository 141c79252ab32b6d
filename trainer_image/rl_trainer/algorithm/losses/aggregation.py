"""How the losses of a step's tokens become one number.

    TokenMean       Σ_i Σ_t l_it / Σ_i T_i            DAPO (arXiv 2503.14476)
    SequenceMean    1/S Σ_i 1/T_i Σ_t l_it            GRPO (arXiv 2402.03300)
    SequenceSum     1/S Σ_i Σ_t l_it                  MiniRL (arXiv 2512.01374)
    ConstantLength  1/(S L) Σ_i Σ_t l_it              Dr. GRPO (arXiv 2503.20783)

over the S sequences of an update with T_i generated tokens each. The numbers under the line are
those of the whole update, never of a microbatch, so that neither accumulation nor packing nor the
number of processes changes the result.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rl_contracts.spec.algorithm.loss import Loss
from rl_trainer.algorithm.losses.ratios import lengths


def scales(sequences: Tensor, section: Loss, *, dtype: torch.dtype) -> Tensor:
    """Factor of each token's loss in the sum: ``[N]``, of the losses' own ``dtype``."""
    if section.averaged == "SequenceMean":
        return 1 / lengths(sequences).to(dtype)
    return torch.ones(len(sequences), dtype=dtype, device=sequences.device)


def denominator(counts: Sequence[int], section: Loss) -> int:
    """What the sum over the update is divided by.

    Args:
        counts: generated tokens of each sequence of the update, ≥ 1.
        section: with the aggregation.
    """
    if section.averaged == "TokenMean":
        return sum(counts)
    if section.averaged == "ConstantLength":
        assert section.length is not None, "the API server asks for it"
        return len(counts) * section.length
    return len(counts)
