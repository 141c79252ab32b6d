"""The policy loss and how it is averaged."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import Model, rule, rules

Aggregation = Literal["TokenMean", "SequenceMean", "SequenceSum", "ConstantLength"]

CLIPS = {
    "PPOClip": (0.2, 0.2),
    "DAPO": (0.2, 0.28),
    "GSPO": (3e-4, 4e-4),
    "CISPO": (1.0, 4.0),
    "MiniRL": (0.2, 0.3),
    "DecoupledPPO": (0.2, 0.2),
    "MaxEnt": (0.2, 0.2),
}
"""Each kind's own ``clipLow`` and ``clipHigh``."""

AGGREGATIONS: dict[str, Aggregation] = {
    "PPOClip": "TokenMean",
    "DAPO": "TokenMean",
    "GSPO": "SequenceMean",
    "CISPO": "TokenMean",
    "MiniRL": "SequenceSum",
    "DecoupledPPO": "TokenMean",
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
    kind: Literal["PPOClip", "DAPO", "GSPO", "CISPO", "MiniRL", "DecoupledPPO", "MaxEnt"] = (
        "PPOClip"
    )
    clip_low: Annotated[float, Field(gt=0, le=1)] | None = None
    """The ratio's lower bound is 1 - clipLow."""
    clip_high: Annotated[float, Field(gt=0, le=100)] | None = None
    """Its upper bound is 1 + clipHigh."""
    dual_clip: Annotated[float, Field(gt=1, le=1000)] | None = None
    """Largest ratio that counts where the advantage is negative."""
    importance_cap: Annotated[float, Field(gt=1, le=1000)] | None = None
    """Tokens of a larger importance weight are left out."""
    clip_coefficient: Annotated[float, Field(gt=0, le=100)] | None = None
    """Weight of MaxEnt's clipped term; unset: none."""
    aggregation: Aggregation | None = None
    length: Annotated[int, Field(ge=1, le=1_048_576)] | None = None
    """Tokens that each sequence is divided by."""

    @property
    def bounds(self) -> tuple[float, float]:
        """Lowest and highest ratio inside the clip."""
        low, high = CLIPS[self.kind]
        low = low if self.clip_low is None else self.clip_low
        high = high if self.clip_high is None else self.clip_high
        return 1 - low, 1 + high

    @property
    def averaged(self) -> Aggregation:
        """The aggregation in force."""
        return self.aggregation or AGGREGATIONS[self.kind]
