"""Ratios of policies, and sums over the tokens of a sequence."""

from __future__ import annotations

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0
"""e^20 = 4.9e8: keeps the ratio finite where the policies have nothing in common."""


def ratio(log_ratio: Tensor) -> Tensor:
    """e^log_ratio, held (and without gradient) beyond ±20; NaN stays NaN."""
    return torch.exp(log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))


def sums(values: Tensor, sequences: Tensor) -> Tensor:
    """Sum over each token's sequence, at every token: ``[N]`` → ``[N]``.

    Args:
        values: of the tokens.
        sequences: int64, index of each token's sequence; see ``LossInputs``.
    """
    totals = values.new_zeros(_number(sequences)).index_add(0, sequences, values)
    return totals[sequences]


def means(values: Tensor, sequences: Tensor) -> Tensor:
    """Mean over each token's sequence, at every token: ``[N]`` → ``[N]``."""
    return sums(values, sequences) / lengths(sequences).to(values.dtype)


def lengths(sequences: Tensor) -> Tensor:
    """Number of tokens of each token's sequence: int64 ``[N]``."""
    return sequences.bincount(minlength=_number(sequences))[sequences]


def _number(sequences: Tensor) -> int:
    return int(sequences[-1]) + 1 if len(sequences) else 0
