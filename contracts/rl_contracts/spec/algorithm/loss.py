"""The policy loss and how it is averaged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import Model, only_of, rule, rules

Temperature = Annotated[float, Field(gt=0, le=100)]
GradientShare = Annotated[float, Field(ge=0, le=10)]
Aggregation = Literal["TokenMean", "SequenceMean", "SequenceSum", "ConstantLength"]
LossName = Literal[
    "PPOClip",
    "DAPO",
    "GSPO",
    "CISPO",
    "CEGPPO",
    "MiniRL",
    "DecoupledPPO",
    "DPPOTV",
    "SAPO",
    "GMPO",
    "MaxEnt",
]
CLIP = ("clipLow", "clipHigh")


@dataclass(frozen=True, slots=True)
class LossKind:
    """What is true of one kind of loss. Rules, defaults and documentation follow from it."""

    aggregation: Aggregation
    """Used where the manifest names none."""
    clips: tuple[float, float] | None
    """The kind's own ``clipLow`` and ``clipHigh``; None where it has no clip."""
    reads: tuple[str, ...] = CLIP
    """Options that may be set, of those that not every kind reads."""
    clips_ratio: bool = True
    """Whether the clip bounds the ratio, so that correction ImportanceCap can widen it."""
    stops: bool = False
    """Whether a token with π / μ beyond the clip, on the side that its advantage pushes to, has no
    gradient, so that leaving it out changes nothing."""
    weighs: bool = False
    """Whether the loss itself weighs by p / μ, so that no correction may."""


LOSS_KINDS: Mapping[LossName, LossKind] = MappingProxyType(
    {
        "PPOClip": LossKind("TokenMean", (0.2, 0.2), reads=(*CLIP, "dualClip"), stops=True),
        "DAPO": LossKind("TokenMean", (0.2, 0.28), reads=(*CLIP, "dualClip"), stops=True),
        "GSPO": LossKind("SequenceMean", (3e-4, 4e-4)),
        "CISPO": LossKind("TokenMean", (1.0, 4.0)),
        "CEGPPO": LossKind(
            "TokenMean",
            (0.2, 0.28),
            reads=(*CLIP, "dualClip", "gradientBelow", "gradientAbove"),
        ),
        "MiniRL": LossKind("SequenceSum", (0.2, 0.3), stops=True),
        "DecoupledPPO": LossKind(
            "TokenMean", (0.2, 0.2), reads=(*CLIP, "dualClip", "importanceCap"), weighs=True
        ),
        "DPPOTV": LossKind("TokenMean", (0.15, 0.15), clips_ratio=False),
        "SAPO": LossKind(
            "SequenceMean", None, reads=("tauPositive", "tauNegative"), clips_ratio=False
        ),
        "GMPO": LossKind("SequenceMean", (-math.expm1(-0.4), math.expm1(0.4))),
        "MaxEnt": LossKind("SequenceMean", (0.2, 0.2), reads=(*CLIP, "clipCoefficient")),
    }
)
"""Every loss by its name in the manifest."""


def _read_by(option: str) -> tuple[LossName, ...]:
    """Kinds that read an option."""
    return tuple(name for name, kind in LOSS_KINDS.items() if option in kind.reads)


OPTIONS = tuple(sorted({option for kind in LOSS_KINDS.values() for option in kind.reads}))


class Loss(Model):
    """The policy loss and how it is averaged.

    Options that are unset have the kind's own value; see docs/reference/algorithms.md.
    """

    model_config = rules(
        *(only_of(option, _read_by(option), "loss") for option in OPTIONS),
        rule(
            "!has(self.clipLow) || !has(self.clipHigh) || self.clipLow <= self.clipHigh",
            "loss.clipLow {self.clipLow} must not exceed loss.clipHigh {self.clipHigh}: lower "
            "clipLow or raise clipHigh",
            field="clipLow",
        ),
        rule(
            "self.kind != 'DPPOTV' || (self.?clipLow.orValue(0.0) < 1.0 && "
            "self.?clipHigh.orValue(0.0) < 1.0)",
            "loss.clipLow and clipHigh must be below 1 with kind DPPOTV: there they bound a "
            "difference of probabilities; 0.15 is the kind's own",
        ),
        rule(
            "self.kind != 'MaxEnt' || has(self.clipCoefficient) || "
            "(!has(self.clipLow) && !has(self.clipHigh))",
            "loss.clipLow and clipHigh mean nothing to MaxEnt without clipCoefficient: set "
            "clipCoefficient or remove them",
        ),
        rule(
            "has(self.length) == (has(self.aggregation) && self.aggregation == 'ConstantLength')",
            "loss.length goes with aggregation ConstantLength, which needs it: set both or neither",
            field="length",
        ),
    )
    kind: LossName = "PPOClip"
    """Formula of the loss. Formulas, papers and when to use which: docs/reference/algorithms.md."""
    clip_low: Annotated[float, Field(gt=0, le=1)] | None = None
    """Lower clip: ratios stay at or above 1 - clipLow; for DPPOTV π - μ stays at or above -clipLow.
    Not for SAPO. Unset: the kind's own, e.g. 0.2."""
    clip_high: Annotated[float, Field(gt=0, le=100)] | None = None
    """Upper clip: ratios stay at or below 1 + clipHigh; for DPPOTV π - μ stays at or below
    clipHigh. Not for SAPO. Unset: the kind's own, e.g. 0.2."""
    dual_clip: Annotated[float, Field(gt=1, le=1000)] | None = None
    """Largest ratio that counts where the advantage is negative. For PPOClip, DAPO, CEGPPO and
    DecoupledPPO. Unset: any."""
    gradient_below: GradientShare | None = None
    """Gradient of a token below the clip whose advantage is negative, as a multiple of that at the
    clip's bound. The paper's β1. For CEGPPO. Unset: 0.75."""
    gradient_above: GradientShare | None = None
    """Gradient of a token above the clip whose advantage is positive, as a multiple of that at the
    clip's bound. The paper's β2. For CEGPPO. Unset: 1."""
    importance_cap: Annotated[float, Field(gt=1, le=1000)] | None = None
    """Tokens with a larger importance weight p / μ are left out. For DecoupledPPO. Unset: none
    are."""
    clip_coefficient: Annotated[float, Field(gt=0, le=100)] | None = None
    """Weight of a clipped PPO term that is added to MaxEnt's loss. For MaxEnt. Unset: no such
    term."""
    tau_positive: Temperature | None = None
    """Temperature of SAPO's gate where the advantage is positive. For SAPO. Unset: 1."""
    tau_negative: Temperature | None = None
    """Temperature of SAPO's gate where the advantage is negative. For SAPO. Unset: 1.05."""
    aggregation: Aggregation | None = None
    """How token losses are averaged: over tokens (`TokenMean`), over sequences of their means or
    sums (`SequenceMean`, `SequenceSum`), or by `ConstantLength`. Unset: the kind's own."""
    length: Annotated[int, Field(ge=1, le=1_048_576)] | None = None
    """Number of tokens that each sequence's sum is divided by. Only with aggregation
    ConstantLength."""

    @property
    def clips(self) -> tuple[float, float]:
        """``clipLow`` and ``clipHigh`` in force; of a kind that has a clip."""
        own = LOSS_KINDS[self.kind].clips
        assert own is not None, f"{self.kind} has no clip"
        low, high = own
        return (
            low if self.clip_low is None else self.clip_low,
            high if self.clip_high is None else self.clip_high,
        )

    @property
    def bounds(self) -> tuple[float, float]:
        """Lowest and highest ratio inside the clip."""
        low, high = self.clips
        return 1 - low, 1 + high

    @property
    def kept_gradients(self) -> tuple[float, float]:
        """Of CEGPPO, below and above the clip."""
        below, above = self.gradient_below, self.gradient_above
        return (0.75 if below is None else below, 1.0 if above is None else above)

    @property
    def temperatures(self) -> tuple[float, float]:
        """Of SAPO, for positive and for negative advantages."""
        positive, negative = self.tau_positive, self.tau_negative
        return (
            1.0 if positive is None else positive,
            1.05 if negative is None else negative,
        )

    @property
    def averaged(self) -> Aggregation:
        """The aggregation in force."""
        return self.aggregation or LOSS_KINDS[self.kind].aggregation
