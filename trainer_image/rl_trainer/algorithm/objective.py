"""What one microbatch adds to an update's loss, from the log-probabilities of its tokens. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_contracts.spec.algorithm.kl import KL
from rl_trainer.algorithm.corrections import CORRECTIONS
from rl_trainer.algorithm.kl.estimators import divergence
from rl_trainer.algorithm.logprobs import TokenStatistics
from rl_trainer.algorithm.losses import LOSSES, aggregation, distillation, supervised
from rl_trainer.algorithm.losses.ratios import ratio
from rl_trainer.algorithm.losses.records import LossFunction, LossInputs
from rl_trainer.algorithm.packing import Packed

LOSS, CLIPPED, GAP, KEPT, DIVERGENCE, ENTROPY = range(6)
"""Places in ``Terms.sums``."""
NUM_SUMS = 6
FLOAT16_MAX = torch.finfo(torch.float16).max


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Sums over the tokens of a microbatch."""

    total: Tensor
    """Scalar that carries the gradient; still to be divided by the update's denominator."""
    sums: Tensor
    """Loss, clipped tokens, |π - μ| in logs, correction weights, divergence from the reference,
    entropy: float64 ``[6]``, on the CPU."""
    largest_gap: float
    log_ratios: tuple[float, float]
    """Least and largest log(π/μ)."""
    not_finite: tuple[int, ...]
    """Indices of the samples whose loss is not finite."""
    values: Tensor | None = None
    """float16 ``[N, 2]`` of each token: log-probability before the step, or else now, minus the
    sampler's; entropy. None where no sampler said anything, or no entropy was asked for."""

    def without_gradient(self) -> Terms:
        """The same numbers; the graph that made them can go."""
        return replace(self, total=self.total.detach().cpu())


def evaluate(
    statistics: TokenStatistics,
    packed: Packed,
    algorithm: Algorithm,
    *,
    step: int,
    kl_coefficient: float = 0.0,
) -> Terms:
    """Loss, correction, KL, entropy and aggregation of a microbatch's N tokens.

    Args:
        statistics: of the weights being trained, with gradient.
        packed: what else is known of the tokens.
        algorithm: the manifest's section.
        step: the training step that is being made, ≥ 1.
        kl_coefficient: β of this step.
    """
    inputs = _inputs(statistics.logprobs, packed, algorithm, step=step)
    outputs = _loss(algorithm)(inputs, algorithm.loss)
    losses, correction = outputs.losses, algorithm.off_policy.correction
    kept = torch.ones_like(losses)
    if correction.kind != "None":
        kept = CORRECTIONS[correction.kind](inputs, correction, algorithm.loss)
        losses = losses * kept
    divergences = torch.zeros_like(losses)
    if algorithm.divergence is not None:
        kl = algorithm.divergence
        divergences = _divergences(statistics, inputs, packed, kl)
        if kl.placement == "Loss":
            losses = losses + kl_coefficient * divergences
        elif (second := kl.in_loss) is not None:
            penalties = _divergences(statistics, inputs, packed, second)
            losses = losses + second.coefficient * penalties
    known = entropies = statistics.entropies
    if entropies is None:
        entropies = torch.zeros_like(losses)
    elif algorithm.entropy_coefficient:
        losses = losses - algorithm.entropy_coefficient * entropies
    scales = aggregation.scales(inputs.sequences, algorithm.loss, dtype=losses.dtype)
    weighted = losses * (packed.weights * scales)
    total = weighted.sum()
    changes = inputs.logprobs.detach() - packed.logprobs
    if algorithm.supervised:  # no sampler said anything
        changes = torch.zeros_like(changes)
    gaps = changes.abs()
    measured = (outputs.clipped, gaps, kept, divergences.detach(), entropies.detach())
    sums = torch.stack([total.detach(), *(value.sum() for value in measured)])
    return Terms(
        total=total,
        sums=sums.double().cpu(),
        largest_gap=float(gaps.max()),
        log_ratios=(float(changes.min()), float(changes.max())),
        not_finite=_not_finite(weighted.detach(), packed),
        values=None if algorithm.supervised else _values(inputs, known),
    )


@torch.no_grad()
def _values(inputs: LossInputs, entropies: Tensor | None) -> Tensor | None:
    if entropies is None:
        return None
    gaps = inputs.proximal_logprobs - inputs.sampler_logprobs
    return torch.stack([gaps, entropies], dim=1).clamp_(-FLOAT16_MAX, FLOAT16_MAX).half()


def _loss(algorithm: Algorithm) -> LossFunction:
    if algorithm.supervised:
        return supervised.loss
    return distillation.loss if algorithm.distils else LOSSES[algorithm.loss.kind]


def denominator(counts: Sequence[int], algorithm: Algorithm) -> int:
    """What the totals of an update over sequences of ``counts`` tokens are divided by."""
    return aggregation.denominator(counts, algorithm.loss)


def needs_proximal(algorithm: Algorithm) -> bool:
    """Whether the loss compares with the weights before the step."""
    return algorithm.loss.kind == "DecoupledPPO" or algorithm.off_policy.correction.weighs


def needs_distributions(algorithm: Algorithm) -> bool:
    """Whether more of each token's distribution is needed than the token's own probability."""
    return bool(algorithm.entropy_coefficient) or needs_full_divergence(algorithm)


def needs_reference_logprobs(algorithm: Algorithm) -> bool:
    """Whether the reference is asked for the sampled tokens' own log-probabilities."""
    kl = algorithm.divergence
    if kl is None:
        return False
    sections = [kl] if kl.in_loss is None else [kl, kl.in_loss]
    return (
        any(
            section.estimator != "Full" or section.gradient == "StraightThrough"
            for section in sections
        )
        or algorithm.estimator.kind == "MaxEnt"
    )


def needs_full_divergence(algorithm: Algorithm) -> bool:
    """Whether the KL is summed over the vocabulary."""
    return algorithm.divergence is not None and "Full" in algorithm.divergence.estimators


def _divergences(
    statistics: TokenStatistics, inputs: LossInputs, packed: Packed, section: KL
) -> Tensor:
    if section.placement == "Reward":  # measured only: of the policy that sampled
        with torch.no_grad():
            return divergence(
                section, packed.logprobs, reference=packed.reference, full=statistics.divergences
            )
    ratios = None
    if section.gradient == "Unbiased":
        # Of the policy that sampled, under every correction: none of them weighs the KL.
        ratios = ratio(inputs.logprobs - inputs.sampler_logprobs)
    return divergence(
        section,
        inputs.logprobs,
        reference=packed.reference,
        full=statistics.divergences,
        ratios=ratios,
    )


def _inputs(logprobs: Tensor, packed: Packed, algorithm: Algorithm, *, step: int) -> LossInputs:
    before = logprobs.detach() if packed.proximal is None else packed.proximal
    return LossInputs(
        logprobs=logprobs,
        sampler_logprobs=packed.logprobs,
        proximal_logprobs=before,
        old_logprobs=before if algorithm.off_policy.correction.weighs else packed.logprobs,
        advantages=packed.advantages,
        sequences=packed.sequences,
        ages=(step - 1 - packed.policy_steps).to(logprobs.dtype),
    )


def _not_finite(losses: Tensor, packed: Packed) -> tuple[int, ...]:
    broken = packed.sequences[~torch.isfinite(losses)].tolist()
    return tuple(packed.members[fromkey] for fromkey in dict.fromkeys(broken))
