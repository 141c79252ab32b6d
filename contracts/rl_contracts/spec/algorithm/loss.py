"""The policy loss and how it is averaged."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema

from rl_contracts.spec.base import NUMBER, Model, rule, rules

Temperature = Annotated[float, Field(gt=0, le=100), NUMBER]
Aggregation = Literal["TokenMean", "SequenceMean", "SequenceSum", "ConstantLength"]

CLIPS = {
    "PPOClip": (0.2, 0.2),
    "DAPO": (0.2, 0.28),
    "GSPO": (3e-4, 4e-4),
    "CISPO": (1.0, 4.0),
    "MiniRL": (0.2, 0.3),
    "DecoupledPPO": (0.2, 0.2),
    "DPPOTV": (0.15, 0.15),
    "GMPO": (-math.expm1(-0.4), math.expm1(0.4)),
    "MaxEnt": (0.2, 0.2),
}
"""Each kind's own ``clipLow`` and ``clipHigh``; SAPO has none."""

AGGREGATIONS: dict[str, Aggregation] = {
    "PPOClip": "TokenMean",
    "DAPO": "TokenMean",
    "GSPO": "SequenceMean",
    "CISPO": "TokenMean",
    "MiniRL": "SequenceSum",
    "DecoupledPPO": "TokenMean",
    "DPPOTV": "TokenMean",
    "SAPO": "SequenceMean",
    "GMPO": "SequenceMean",
    "MaxEnt": "SequenceMean",
}
"""Each kind's own ``aggregation``."""


class Loss(Model):
    """The policy loss; what is unset is the kind's own."""

    model_config = rules(
        rule(
            "!has(self.dualClip) || self.kind in ['PPOClip', 'DAPO', 'DecoupledPPO']",
            "loss.dualClip is for kinds PPOClip, DAPO and DecoupledPPO",
        ),
        rule(
            "!has(self.importanceCap) || self.kind == 'DecoupledPPO'",
            "loss.importanceCap is for kind DecoupledPPO: use offPolicy.correction",
        ),
        rule(
            "!has(self.clipCoefficient) || self.kind == 'MaxEnt'",
            "loss.clipCoefficient is for kind MaxEnt",
        ),
        rule(
            "self.kind != 'MaxEnt' || has(self.clipCoefficient) || "
            "(!has(self.clipLow) && !has(self.clipHigh))",
            "loss.clipLow and clipHigh mean nothing to MaxEnt without clipCoefficient",
        ),
        rule(
            "has(self.length) == (has(self.aggregation) && self.aggregation == 'ConstantLength')",
            "loss.length goes with aggregation ConstantLength",
        ),
    )
    kind: Literal[
        "PPOClip",
        "DAPO",
        "GSPO",
        "CISPO",
        "MiniRL",
        "DecoupledPPO",
        "DPPOTV",
        "SAPO",
        "GMPO",
        "MaxEnt",
    ] = "PPOClip"
    clip_low: Annotated[float, Field(gt=0, le=1)] | None = None
    """Ratio ≥ 1 - clipLow; DPPOTV: π - μ ≥ -clipLow."""
    clip_high: Annotated[float, Field(gt=0, le=100), NUMBER] | None = None
    """Ratio ≤ 1 + clipHigh; DPPOTV: π - μ ≤ clipHigh."""
    dual_clip: Annotated[float, Field(gt=1, le=1000), NUMBER] | None = None
    """Largest ratio that counts where the advantage is negative."""
    importance_cap: Annotated[float, Field(gt=1, le=1000), NUMBER] | None = None
    """Tokens of a larger importance weight are left out."""
    clip_coefficient: Annotated[float, Field(gt=0, le=100), NUMBER] | None = None
    """Weight of MaxEnt's clipped term; unset: none."""
    tau_positive: Temperature | None = None
    """SAPO's temperature where the advantage is positive."""
    tau_negative: Temperature | None = None
    """Where it is negative."""
    aggregation: Aggregation | None = None
    length: (
        Annotated[int, Field(ge=1, le=1_048_576), WithJsonSchema({"type": "integer"})] | None
    ) = None
    """Tokens that each sequence is divided by."""

    @property
    def clips(self) -> tuple[float, float]:
        """``clipLow`` and ``clipHigh`` in force."""
        low, high = CLIPS[self.kind]
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
        return self.aggregation or AGGREGATIONS[self.kind]
