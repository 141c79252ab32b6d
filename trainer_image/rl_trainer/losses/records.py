"""What goes into a policy loss and what comes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from rl_contracts.spec.learning import Loss


@dataclass(frozen=True, slots=True, kw_only=True)
class LossInputs:
    """Generated tokens of a microbatch, in any order; float32 ``[N]`` each."""

    logprobs: Tensor
    """log π: of the weights being trained; carries the gradient."""
    sampler_logprobs: Tensor
    """log μ: of the policy that sampled the token, as the engine reported it."""
    advantages: Tensor
    """A: positive where the token should become more likely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossOutputs:
    """One entry for each token of the inputs; nothing is summed or averaged yet."""

    losses: Tensor
    """To be minimised; float32 ``[N]``."""
    clipped: Tensor
    """True where the loss gives its token no gradient on purpose; bool ``[N]``."""


LossFunction = Callable[[LossInputs, Loss], LossOutputs]
"""A loss is a pure function of its inputs and of its section in the manifest."""
