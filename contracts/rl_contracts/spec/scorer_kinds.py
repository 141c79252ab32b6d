"""Scorers that neither the manifest brings nor the installation's image has."""

from __future__ import annotations

from collections.abc import Iterator

from rl_contracts.errors import Refusal
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.reward import BUILT_IN_SCORERS


def refusals(spec: RLJobSpec) -> Iterator[Refusal]:
    """Scorers that no sampler of the job can know.

    Images of the user's own, and of shared pools, may have others: their samplers say so.
    """
    if any(group.pool_ref is not None or group.template.image for group in spec.samplers):
        return
    for index, scorer in enumerate(spec.reward.scorers):
        if not scorer.is_own and scorer.kind not in BUILT_IN_SCORERS:
            yield Refusal(
                field=f"spec.reward.scorers[{index}].kind",
                value=scorer.kind,
                reason="ScorerUnknown",
                message="The samplers know no scorer of this kind.",
                remedy=f"Use one of {', '.join(BUILT_IN_SCORERS)}, or set entryPoint or judge.",
            )
