"""Estimates of KL(π ‖ ref) from the log-probabilities of sampled tokens.

With Δ = log ref - log π, held in ±20 (Schulman, "Approximating KL divergence"):

    K1   -Δ             unbiased, may be negative
    Abs  |Δ|
    K2   Δ² / 2         its gradient is that of the KL
    K3   e^Δ - Δ - 1    unbiased, never negative

``Full`` is the sum over the vocabulary, Σ_v π (log π - log ref); ``logprobs`` computes it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rl_contracts.spec.algorithm.kl import KL

MAX_DIFFERENCE = 20.0


def k1(difference: Tensor) -> Tensor:
    """-Δ."""
    return -difference


def k2(difference: Tensor) -> Tensor:
    """Δ² / 2."""
    return difference.square() / 2


def k3(difference: Tensor) -> Tensor:
    """e^Δ - Δ - 1."""
    return torch.expm1(difference) - difference


ESTIMATES: dict[str, Callable[[Tensor], Tensor]] = {
    "K1": k1,
    "Abs": torch.abs,
    "K2": k2,
    "K3": k3,
}


def divergence(
    section: KL,
    logprobs: Tensor,
    *,
    reference: Tensor | None,
    full: Tensor | None,
    ratios: Tensor | None = None,
) -> Tensor:
    """Divergence of each token, float32 ``[N]``, with the gradient that the section asks for.

    Args:
        section: estimator and gradient.
        logprobs: log π of the sampled tokens ``[N]``.
        reference: log ref of the same ``[N]``; needed by all but ``Full`` without straight-through.
        full: the sum over the vocabulary ``[N]``, for ``Full``.
        ratios: π / μ ``[N]`` with gradient, for ``Unbiased`` (DeepSeek-V3.2, arXiv 2512.02556):
            expectations under the policy that sampled become those under π, gradient included.
    """
    difference = None
    if reference is not None:
        difference = (reference - logprobs).clamp(-MAX_DIFFERENCE, MAX_DIFFERENCE)
    if section.estimator == "Full":
        assert full is not None
        value = full
    else:
        assert difference is not None
        value = ESTIMATES[section.estimator](difference)
    if section.gradient == "StraightThrough":
        assert difference is not None
        through = k2(difference)
        value = value.detach() + (through - through.detach())
    if section.gradient == "Unbiased":
        assert ratios is not None
        value = value * ratios
    return value
