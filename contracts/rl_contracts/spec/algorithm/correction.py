"""What is done where the policy that sampled is not the one that is trained."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import NUMBER, Model, rule, rules

WEIGHING = ("TIS", "IcePop", "MIS")
"""Kinds that weigh by p / μ: the loss's own ratio is then π / p."""


class Correction(Model):
    """Weighs or leaves out tokens that are too far off the policy."""

    model_config = rules(
        rule(
            "!has(self.cap) || self.kind in ['TIS', 'IcePop', 'MIS', 'ImportanceCap']",
            "correction.cap is not for this kind",
        ),
        rule(
            "!has(self.low) || self.kind in ['TIS', 'IcePop', 'MIS']",
            "correction.low is for kinds TIS, IcePop and MIS",
        ),
        rule(
            "!has(self.low) || !has(self.cap) || self.low < self.cap",
            "correction.low must be smaller than cap",
        ),
        rule(
            "!has(self.level) || self.kind == 'MIS'",
            "correction.level is for kind MIS",
        ),
        rule(
            "has(self.threshold) == (self.kind == 'OPSM')",
            "correction.threshold goes with kind OPSM alone",
        ),
        rule(
            "(!has(self.decay) && !has(self.strictInBound)) || self.kind == 'ImportanceCap'",
            "correction.decay and strictInBound are for kind ImportanceCap",
        ),
        rule(
            "!has(self.decay) || !self.?strictInBound.orValue(false)",
            "correction.decay changes nothing under strictInBound",
        ),
    )
    kind: Literal["None", "TIS", "IcePop", "MIS", "OPSM", "ImportanceCap"] = "None"
    cap: Annotated[float, Field(ge=1, le=1000)] | None = None
    """Largest weight; of ImportanceCap the factor on the loss's clip."""
    low: Annotated[float, Field(ge=0, le=1)] | None = None
    level: Literal["Sequence", "Geometric"] | None = None
    """Of a sequence: the product of its tokens' ratios, or their geometric mean."""
    threshold: Annotated[float, Field(gt=0, le=100), NUMBER] | None = None
    """Mean log-ratio above which a sequence of negative advantage is left out."""
    decay: Annotated[float, Field(ge=0, le=100)] | None = None
    """For each step of age the cap shrinks by e^-decay."""
    strict_in_bound: bool | None = None
    """The loss's own clip is the bound."""

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest weight kept, the kind's own where unset."""
        low, cap = {
            "TIS": (0.0, 2.0),
            "IcePop": (0.5, 5.0),
            "MIS": (0.0, 3.0),
            "ImportanceCap": (0.0, 4.0),
        }[self.kind]
        return low if self.low is None else self.low, cap if self.cap is None else self.cap

    @property
    def weighs(self) -> bool:
        """Whether it multiplies the loss by p / μ."""
        return self.kind in WEIGHING
