"""Rules of engines that look at other sections, in CEL."""

from __future__ import annotations

from rl_contracts.spec.algorithm.correction import WEIGHING
from rl_contracts.spec.base import either, listed, rule


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
    rule(
        _of_each(
            "cachePrecision",
            f"self.algorithm.offPolicy.correction.kind in {listed(WEIGHING)}",
        ),
        "samplers[].template.engine.cachePrecision is set: with a quantized cache the sampler's "
        "probabilities are not those of the policy that is trained; set "
        f"algorithm.offPolicy.correction.kind to {either(WEIGHING)}, or remove cachePrecision",
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

OF_SHARED_ENGINE = (
    rule(
        "!has(self.model) || !has(self.template.engine.cachePrecision)",
        "spec.template.engine.cachePrecision is for pools of a job, whose loss corrects for the "
        "quantized cache: remove it",
        field="template.engine.cachePrecision",
    ),
)
"""Rules of a pool that jobs share."""
