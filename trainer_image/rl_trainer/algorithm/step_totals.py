"""What a training step did, summed up from its updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rl_contracts.documents.step_metrics import GpuUse
from rl_trainer.algorithm import objective, routing
from rl_trainer.algorithm.objective import Terms
from rl_trainer.algorithm.routing import Routed


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """How far the trainer's log-probabilities are from the samplers'."""

    tokens: int
    total: float
    """Sum of absolute differences."""
    largest: float

    @property
    def mean(self) -> float:
        """Mean absolute difference; 0 without tokens."""
        return self.total / self.tokens if self.tokens else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Learning rates of a step's updates."""

    policy: float
    critic: float | None = None
    """None without a critic, and of steps that an earlier release made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What one training step did. Without a policy update (critic warm-up) its numbers are 0."""

    loss: float
    """Mean over its updates."""
    gradient_norm: float
    """Before clipping; mean over its updates."""
    learning_rate: float
    clip_fraction: float
    """Share of the tokens that the clip held back, over all updates."""
    correction_weight: float
    """Mean over the tokens of what the off-policy correction multiplied by."""
    gap: Gap
    """Of each token as the step first met it: before the first update."""
    seconds: float
    log_ratios: tuple[float, float] | None = None
    """Extremes of log(π/μ) over the tokens of all updates; None without an update."""
    phases: dict[str, float] = field(default_factory=dict)
    """``seconds`` by phase."""
    mfu: float | None = None
    """Of its policy updates (flops.py); None where it cannot be known."""
    kl: float | None = None
    """Mean divergence of a token from the reference, as the step first met it."""
    kl_coefficient: float | None = None
    """Of this step."""
    entropy: float | None = None
    """Mean of the tokens' distributions in nats, as the step first met them."""
    tau: float | None = None
    """MaxEnt's temperature of this step."""
    experts: dict[str, float] = field(default_factory=dict)
    """``routing.figures`` of the step's first pass; empty without experts."""
    value_loss: float | None = None
    """Mean over the critic's updates."""
    critic_learning_rate: float | None = None
    """None without a critic."""
    gpus: tuple[GpuUse, ...] = ()
    """By rank; empty on processors."""
    values: dict[int, Tensor] = field(default_factory=dict, compare=False)
    """Of the samples that this rank computed in the first pass, by index: ``Terms.values``, on the
    CPU."""
    skipped: int = 0
    """Updates that were not made, because their gradient was not finite in float16."""
    loss_scale: float | None = None
    """Of the next update; None where losses are not scaled."""


@dataclass(slots=True)
class Tally:
    """Running sums of a step's policy updates."""

    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    tokens: int = 0
    sums: Tensor = field(
        default_factory=lambda: torch.zeros(objective.NUM_SUMS, dtype=torch.float64)
    )
    first_tokens: int = 0
    """Of the first pass, as are the next two."""
    first_sums: Tensor = field(
        default_factory=lambda: torch.zeros(objective.NUM_SUMS, dtype=torch.float64)
    )
    largest_gap: float = 0.0
    log_ratios: tuple[float, float] | None = None
    routed: list[Routed] = field(default_factory=list)
    """Of the first pass, by update and rank."""
    values: dict[int, Tensor] = field(default_factory=dict)
    """As those of ``Update``."""

    def add(
        self,
        terms: Sequence[Terms],
        *,
        denominator: int,
        norm: float | None,
        tokens: int,
        first: bool,
    ) -> float:
        """Count one update; returns its loss.

        Args:
            terms: of its microbatches.
            denominator: what their totals are divided by.
            norm: of its gradient; None where the update is skipped.
            tokens: generated tokens that it took.
            first: it is of the step's first pass.
        """
        sums = sum((term.sums for term in terms), torch.zeros_like(self.sums))
        loss = float(sums[objective.LOSS]) / denominator
        self.losses.append(loss)
        if norm is not None:
            self.norms.append(norm)
        self.tokens += tokens
        self.sums += sums
        extremes = [*([] if self.log_ratios is None else [self.log_ratios])]
        extremes += [term.log_ratios for term in terms]
        self.log_ratios = (min(low for low, _ in extremes), max(high for _, high in extremes))
        if first:
            self.first_tokens += tokens
            self.first_sums += sums
            self.largest_gap = max(self.largest_gap, *(term.largest_gap for term in terms))
        return loss

    def mean(self, place: int, *, default: float = 0.0) -> float:
        """A sum over all updates, divided by their tokens; ``default`` without any."""
        return float(self.sums[place]) / self.tokens if self.tokens else default

    def first_mean(self, place: int) -> float:
        """A sum over the first pass, divided by its tokens; 0 without any."""
        return float(self.first_sums[place]) / self.first_tokens if self.first_tokens else 0.0

    @property
    def experts(self) -> dict[str, float]:
        """What the routers of the first pass did; empty without experts."""
        return routing.figures(routing.together(self.routed)) if self.routed else {}

    @property
    def gap(self) -> Gap:
        """The gap over the tokens of the step's first pass."""
        return Gap(
            tokens=self.first_tokens,
            total=float(self.first_sums[objective.GAP]),
            largest=self.largest_gap,
        )
