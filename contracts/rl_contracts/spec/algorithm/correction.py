"""What is done where the policy that sampled is not the one that is trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import Model, only_of, rule, rules

CorrectionName = Literal["None", "TIS", "IcePop", "MIS", "OPSM", "ImportanceCap"]


@dataclass(frozen=True, slots=True)
class CorrectionKind:
    """What is true of one kind of correction. Rules and defaults follow from it."""

    low: float = 0.0
    """The kind's own ``low``."""
    cap: float | None = None
    """The kind's own ``cap``; None where it has no such bound."""
    reads: tuple[str, ...] = ()
    """Options that may be set."""
    weighs: bool = False
    """Whether it multiplies the loss by p / μ: the loss's own ratio is then π / p."""


CORRECTION_KINDS: Mapping[CorrectionName, CorrectionKind] = MappingProxyType(
    {
        "None": CorrectionKind(),
        "TIS": CorrectionKind(0.0, 2.0, reads=("low", "cap", "level"), weighs=True),
        "IcePop": CorrectionKind(0.5, 5.0, reads=("low", "cap"), weighs=True),
        "MIS": CorrectionKind(0.0, 3.0, reads=("low", "cap", "level"), weighs=True),
        "OPSM": CorrectionKind(reads=("threshold",)),
        "ImportanceCap": CorrectionKind(0.0, 4.0, reads=("cap", "decay", "strictInBound")),
    }
)
"""Every correction by its name in the manifest."""
WEIGHING = tuple(name for name, kind in CORRECTION_KINDS.items() if kind.weighs)


def _read_by(option: str) -> tuple[CorrectionName, ...]:
    """Kinds that read an option."""
    return tuple(name for name, kind in CORRECTION_KINDS.items() if option in kind.reads)


OPTIONS = tuple(sorted({option for kind in CORRECTION_KINDS.values() for option in kind.reads}))


class Correction(Model):
    """How tokens whose probability has changed since they were sampled are weighted or left out."""

    model_config = rules(
        *(only_of(option, _read_by(option), "correction") for option in OPTIONS),
        rule(
            "!has(self.low) || !has(self.cap) || self.low < self.cap",
            "correction.low must be smaller than cap: {self.low} is not smaller than {self.cap}",
            field="low",
        ),
        rule(
            "self.kind != 'OPSM' || has(self.threshold)",
            "correction.threshold goes with kind OPSM, which needs it: set threshold",
            field="threshold",
        ),
        rule(
            "!has(self.decay) || !self.?strictInBound.orValue(false)",
            "correction.decay changes nothing under strictInBound: remove one of them",
            field="decay",
        ),
    )
    kind: CorrectionName = "None"
    """How each token's loss is weighted by p / μ, the trainer's over the sampler's probability.
    `TIS` clips the weight, `IcePop` and `MIS` drop what is out of range, `OPSM` drops sequences,
    `ImportanceCap` drops tokens. `None`: no correction."""
    cap: Annotated[float, Field(ge=1, le=1000)] | None = None
    """Largest weight; for ImportanceCap the factor on the loss's clip. For TIS, IcePop, MIS and
    ImportanceCap. Unset: 2, 5, 3 and 4."""
    low: Annotated[float, Field(ge=0, le=1)] | None = None
    """Smallest weight. For TIS, IcePop and MIS. Unset: 0, 0.5 and 0."""
    level: Literal["Sequence", "Geometric"] | None = None
    """Weight of a whole sequence: the product of their ratios (`Sequence`) or its
    geometric mean (`Geometric`). For TIS and MIS. Unset: TIS has a weight for each token, MIS has
    Sequence."""
    threshold: Annotated[float, Field(gt=0, le=100)] | None = None
    """Mean log-ratio of a token above which a sequence with a negative advantage is left out.
    Required with OPSM, refused with any other kind."""
    decay: Annotated[float, Field(ge=0, le=100)] | None = None
    """The cap shrinks by the factor e^-decay for each step of age. For ImportanceCap. Unset: 0."""
    strict_in_bound: bool | None = None
    """Whether the loss's own clip is the bound, instead of the clip times cap. For ImportanceCap.
    Unset: false."""

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest weight kept, the kind's own where unset."""
        own = CORRECTION_KINDS[self.kind]
        assert own.cap is not None, f"{self.kind} has no range"
        return (
            own.low if self.low is None else self.low,
            own.cap if self.cap is None else self.cap,
        )

    @property
    def weighs(self) -> bool:
        """Whether it multiplies the loss by p / μ."""
        return CORRECTION_KINDS[self.kind].weighs
