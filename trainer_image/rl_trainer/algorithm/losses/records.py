"""What goes into a policy loss and what comes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from rl_contracts.spec.algorithm.loss import Loss


@dataclass(frozen=True, slots=True, kw_only=True)
class LossInputs:
    """Generated tokens of whole sequences, one sequence after the other; ``[N]`` each.

    Example: sequences of 2 and 1 generated tokens have ``sequences = [0, 0, 1]``.
    """

    logprobs: Tensor
    """log π, float32: of the weights being trained; carries the gradient."""
    sampler_logprobs: Tensor
    """log μ, float32: of the policy that sampled the token, as the engine reported it."""
    proximal_logprobs: Tensor
    """log p, float32: of the trainer's weights before the step; no gradient."""
    old_logprobs: Tensor
    """float32, one of the two: what the loss's ratio is taken against."""
    advantages: Tensor
    """A, float32: positive where the token should become more likely."""
    sequences: Tensor
    """int64: index of the token's sequence, ascending from 0, none left out."""
    ages: Tensor
    """float32, ≥ 0: training steps between the policy that sampled the token and the update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossOutputs:
    """One entry for each token of the inputs; nothing is summed or averaged yet."""

    losses: Tensor
    """To be minimised; float32 ``[N]``."""
    clipped: Tensor
    """True where the clip holds the token back; bool ``[N]``."""


LossFunction = Callable[[LossInputs, Loss], LossOutputs]
"""A loss is a pure function of its inputs and of its section in the manifest."""
