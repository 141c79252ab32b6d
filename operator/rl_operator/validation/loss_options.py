"""Options of a policy loss that its kind would not read, refused by name."""

from __future__ import annotations

from collections.abc import Iterator

from rl_contracts.errors import Refusal
from rl_contracts.spec.algorithm.algorithm import Algorithm

AT = "spec.algorithm.loss"


def of_loss(algorithm: Algorithm) -> Iterator[Refusal]:
    """What of ``spec.algorithm`` does not go with its loss's kind."""
    loss = algorithm.loss
    clips = {"clipLow": loss.clip_low, "clipHigh": loss.clip_high}
    if loss.kind == "SAPO":
        for name, value in clips.items():
            yield from _refused(f"{AT}.{name}", value, "SAPO has a gate and no clip.", "Remove it.")
    else:
        temperatures = {"tauPositive": loss.tau_positive, "tauNegative": loss.tau_negative}
        for name, value in temperatures.items():
            yield from _refused(f"{AT}.{name}", value, "It is for kind SAPO.", "Remove it.")
    if loss.kind == "DPPOTV":
        for name, value in clips.items():
            if value is not None and value >= 1:
                yield from _refused(
                    f"{AT}.{name}",
                    value,
                    "With kind DPPOTV it bounds a difference of probabilities, which is below 1.",
                    "Set it below 1; 0.15 is the kind's own.",
                )
    if loss.kind in ("DPPOTV", "SAPO") and algorithm.off_policy.correction.kind == "ImportanceCap":
        yield from _refused(
            "spec.algorithm.offPolicy.correction.kind",
            "ImportanceCap",
            f"It widens the loss's clip of the ratio, and loss.kind {loss.kind} has none.",
            "Use TIS, IcePop, MIS or OPSM, or another loss.",
        )


def _refused(field: str, value: float | str | None, message: str, remedy: str) -> Iterator[Refusal]:
    if value is not None:
        yield Refusal(
            field=field, value=str(value), reason="OptionUnused", message=message, remedy=remedy
        )
