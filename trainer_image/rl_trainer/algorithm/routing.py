"""What routers of mixtures of experts choose, in numbers, and the losses on it. Pure.

With $N$ experts, $K$ of which each of $T$ tokens chooses, $f_e$ the share of all choices that fall
on expert $e$ and $P_e$ the mean over tokens of its probability, the load-balance loss of a layer is

    N * sum_e f_e P_e

(Switch Transformers, arXiv 2101.03961, equations 4 to 6, for K = 1; GShard, arXiv 2006.16668,
section 2.2): 1 where both are even. Only $P$ has a gradient. $f$ and $P$ are taken over all tokens
of an update, prompts included, whatever microbatches and ranks they are on (arXiv 2501.11873). The
z-loss is the mean over tokens of the square of the log-sum-exp of their logits (ST-MoE, arXiv
2202.08906, equation 5). Both are means over the layers with experts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rl_contracts.capacity.experts import Scores


def probabilities(logits: Tensor, scores: Scores) -> Tensor:
    """Each token's probabilities of experts, float32 ``[T, N]``; rows sum to 1.

    Args:
        logits: of the router ``[T, N]``, of any precision.
        scores: ``Sigmoid``: each expert's score is divided by their sum (DeepSeek-V3, arXiv
            2412.19437, equation 19).
    """
    exact = logits.float()
    if scores == "Softmax":
        return exact.softmax(-1)
    each = exact.sigmoid()
    return each / (each.sum(-1, keepdim=True) + 1e-20)


def squared_sums(logits: Tensor) -> Tensor:
    """The square of each token's log-sum-exp, float32 ``[T]``."""
    return logits.float().logsumexp(-1).square()


def gates(
    logits: Tensor, chosen: Tensor, scores: Scores, *, normalized: bool, scaling: float
) -> Tensor:
    """What each token's chosen experts are weighed with, float32 ``[T, K]``, differentiable.

    Routing replay (R3, arXiv 2510.11370): the engine's choices with the gates of the weights that
    are trained, so that the router still learns.

    Args:
        logits: of the router ``[T, N]``.
        chosen: experts of each token, int64 ``[T, K]``.
        scores: how logits become scores.
        normalized: a token's gates sum to ``scaling``.
        scaling: factor of all gates.
    """
    exact = logits.float()
    each = exact.softmax(-1) if scores == "Softmax" else exact.sigmoid()
    picked = each.gather(-1, chosen)
    if normalized:
        # The small number is that of DeepSeek's router; with softmax, sums are far from it.
        picked = picked / (picked.sum(-1, keepdim=True) + 1e-20)
    return picked * scaling


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """Sums over tokens, by layer with experts, in their order; on the CPU."""

    tokens: int
    chosen: Tensor
    """int64 ``[L, N]``: tokens that chose the expert."""
    probabilities: Tensor
    """float64 ``[L, N]``."""
    entropies: Tensor
    """float64 ``[L]``: of the tokens' probabilities, in nats."""
    squares: Tensor
    """float64 ``[L]``: ``squared_sums``."""

    @property
    def loads(self) -> Tensor:
        """Share of each expert in its layer's choices, float64 ``[L, N]``."""
        return self.chosen.double() / self.chosen.sum(-1, keepdim=True)


def measured(logits: Tensor, chosen: Tensor, scores: Scores) -> tuple[Tensor, ...]:
    """A layer's part of ``Routed``, on its device: choices, probabilities, entropy, square.

    Args:
        logits: of its router ``[T, N]``.
        chosen: experts of each token ``[T, K]``.
        scores: how logits become scores.
    """
    each = probabilities(logits, scores)
    entropies = -(each * each.clamp_min(1e-30).log()).sum()
    counts = torch.bincount(chosen.flatten(), minlength=logits.shape[-1])
    return counts, each.sum(0).double(), entropies.double(), squared_sums(logits).sum().double()


def together(parts: Sequence[Routed]) -> Routed:
    """Sums over all parts; at least one."""
    return Routed(
        tokens=sum(part.tokens for part in parts),
        chosen=torch.stack([part.chosen for part in parts]).sum(0),
        probabilities=torch.stack([part.probabilities for part in parts]).sum(0),
        entropies=torch.stack([part.entropies for part in parts]).sum(0),
        squares=torch.stack([part.squares for part in parts]).sum(0),
    )


def figures(routed: Routed) -> dict[str, float]:
    """What a step's metrics say of its routers.

    Returns:
        ``load_max_ratio``: tokens of the busiest expert by the mean of its layer, of the worst
        layer, ≥ 1. ``load_entropy``: of the shares in the choices, as a share of the entropy of
        even ones, mean over layers, in [0, 1]. ``dead``: experts that no token chose, of all
        layers. ``router_entropy``: mean of the tokens' probabilities, in nats.
        ``load_balance_loss`` and ``z_loss``: as above, not weighted.
    """
    if not routed.tokens:
        return {}
    loads, experts = routed.loads, routed.chosen.shape[-1]
    entropies = -(loads * loads.clamp_min(1e-300).log()).sum(-1)
    means = routed.probabilities / routed.tokens
    return {
        "load_max_ratio": float(loads.max() * experts),
        "load_entropy": float(entropies.mean()) / math.log(experts) if experts > 1 else 1.0,
        "dead": float((routed.chosen == 0).sum()),
        "router_entropy": float(routed.entropies.mean()) / routed.tokens,
        "load_balance_loss": float((loads * means).sum(-1).mean() * experts),
        "z_loss": float(routed.squares.mean()) / routed.tokens,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """What an update adds to its loss for each token at each layer."""

    balance: Tensor
    """float32 ``[L, N]``, on the policy's device: factor of each probability."""
    square: float
    """Factor of the square of the log-sum-exp."""

    def of(self, layer: int, logits: Tensor, scores: Scores) -> Tensor:
        """A layer's sum over tokens, a float32 scalar with gradient.

        Args:
            layer: which, from 0.
            logits: of its router ``[T, N]``.
            scores: how logits become scores.
        """
        total = logits.new_zeros((), dtype=torch.float32)
        if bool(self.balance.numel()):
            total = total + (probabilities(logits, scores) * self.balance[layer]).sum()
        if self.square:
            total = total + self.square * squared_sums(logits).sum()
        return total


def pull(loads: Tensor | None, *, tokens: int, layers: int, balance: float, square: float) -> Pull:
    """What to add, so that all tokens of an update together add both losses.

    Args:
        loads: ``Routed.loads`` of the update, on the policy's device; None where ``balance`` is 0.
        tokens: of the update, on all ranks.
        layers: with experts.
        balance: coefficient of the load-balance loss.
        square: of the z-loss.
    """
    each = tokens * layers
    factors = torch.zeros(0)
    if loads is not None:
        factors = (loads * (balance * loads.shape[-1] / each)).float()
    return Pull(balance=factors, square=square / each)


class _Attached(torch.autograd.Function):
    """Gates, whose backward pass adds a loss that is computed beside them."""

    @staticmethod
    def forward(ctx: object, gates: Tensor, loss: Tensor) -> Tensor:
        del ctx, loss
        return gates.view_as(gates)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> tuple[Tensor, Tensor]:
        del ctx
        return gradient, gradient.new_ones((), dtype=torch.float32)


def attached(gates: Tensor, loss: Tensor) -> Tensor:
    """``gates`` unchanged; where their gradient passes, that of ``loss`` is added.

    So the loss needs no way out of the layer, which may be run again in the backward pass.
    """
    result: Tensor = _Attached.apply(gates, loss)
    return result
