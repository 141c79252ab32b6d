"""Rules of engines that look at other sections, in CEL."""

from __future__ import annotations

from rl_contracts.spec.algorithm.correction import WEIGHING
from rl_contracts.spec.base import either, listed, rule

QUANTIZED = {"cachePrecision": "a quantized cache", "weightPrecision": "quantized weights"}
"""Options with which the engine does not compute with the published policy's numbers."""


def _of_each(option: str, holds: str) -> str:
    """CEL: every group of samplers leaves an option of its engine unset, or this holds."""
    engine = "group.template.engine"
    return (
        "self.samplers.all(group, !has(group.template) || !has(group.template.engine) || "
        f"!has({engine}.{option}) || {holds})"
    )


OF_ENGINES = (
    rule(
        _of_each(
            "contextTokens",
            "group.template.engine.contextTokens >= self.agent.sampling.maxContextTokens",
        ),
        "samplers[].template.engine.contextTokens must be at least "
        "agent.sampling.maxContextTokens, which is {self.agent.sampling.maxContextTokens}: the "
        "engine would refuse long episodes; raise it, remove it or lower maxContextTokens",
        field="samplers",
    ),
    *(
        rule(
            _of_each(option, f"self.algorithm.offPolicy.correction.kind in {listed(WEIGHING)}"),
            f"samplers[].template.engine.{option} is set: with {what} the sampler's "
            "probabilities are not those of the policy that is trained; set "
            f"algorithm.offPolicy.correction.kind to {either(WEIGHING)}, or remove {option}",
            field="samplers",
        )
        for option, what in QUANTIZED.items()
    ),
    rule(
        _of_each(
            "weightPrecision",
            "(self.training.precision == 'BF16' && !has(self.training.lora) && "
            "self.placement == 'Separate')",
        ),
        "samplers[].template.engine.weightPrecision is for training.precision BF16 without "
        "training.lora, and for placement Separate: other updates of a quantized engine are not "
        "proven; remove it, or change these",
        field="samplers",
    ),
    rule(
        _of_each("speculation", "self.algorithm.experts.routing != 'Replay'"),
        "algorithm.experts.routing is Replay, and samplers[].template.engine.speculation is set: "
        "that the engine returns the experts of accepted guesses is not proven; remove one of them",
        field="algorithm.experts.routing",
    ),
)
"""Rules of a job on the engines of its own pools."""

OF_SHARED_ENGINE = tuple(
    rule(
        f"!has(self.model) || !has(self.template.engine.{option})",
        f"spec.template.engine.{option} is not for a pool that jobs share, since a job's loss must "
        f"correct for {what}: remove it, or use a pool of one job",
        field=f"template.engine.{option}",
    )
    for option, what in QUANTIZED.items()
)
"""Rules of a pool that jobs share."""
