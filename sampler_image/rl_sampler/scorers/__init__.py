"""Scorers: each says how good a response is, in [0, 1]."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence

from rl_contracts.documents.rollout import RewardPart
from rl_contracts.spec.reward import Reward
from rl_sampler.scorers.exact_match import exact_match
from rl_sampler.scorers.format import well_formed
from rl_sampler.scorers.length import shortness
from rl_sampler.scorers.mathematics import mathematics
from rl_sampler.scorers.question_answering import f1, normalized_match
from rl_sampler.scorers.response import Response, ScoringError

Scorer = Callable[[Response], float]
"""Not for an event loop: some take seconds."""
AsyncScorer = Callable[[Response], Awaitable[float]]

SCORERS: dict[str, Scorer] = {
    "ExactMatch": exact_match,
    "F1": f1,
    "Format": well_formed,
    "Length": shortness,
    "Math": mathematics,
    "NormalizedMatch": normalized_match,
}
"""By the kind that a manifest names."""


class Scorers:
    """The sampler's own scorers, and those that the manifest brings."""

    def __init__(self, own: Mapping[str, AsyncScorer] | None = None) -> None:
        """Take in ``own`` scorers, by kind."""
        self._own = own or {}

    @property
    def known(self) -> list[str]:
        """All kinds, sorted."""
        return sorted([*SCORERS, *self._own])

    def unknown(self, reward: Reward) -> list[str]:
        """Kinds that a manifest names and nobody here knows, in its order."""
        return [scorer.kind for scorer in reward.scorers if scorer.kind not in self.known]

    async def score(self, response: Response, *, reward: Reward) -> list[RewardPart]:
        """Ask every scorer of a manifest, side by side.

        Raises:
            ScoringError: a scorer answered outside [0, 1]; neither this nor any other exception
                of a scorer is ever a reward.
        """
        values = await asyncio.gather(
            *(self._ask(scorer.kind, response) for scorer in reward.scorers)
        )
        return [
            RewardPart(scorer=one.kind, value=value, weight=one.weight)
            for one, value in zip(reward.scorers, values, strict=True)
        ]

    async def _ask(self, kind: str, response: Response) -> float:
        own = self._own.get(kind)
        if own is not None:
            value = await own(response)
        else:
            value = await asyncio.to_thread(SCORERS[kind], response)
        if not 0.0 <= value <= 1.0:
            raise ScoringError(f"scorer {kind} answered {value}, which is not in [0, 1]")
        return value


def total(parts: Sequence[RewardPart]) -> float:
    """The weighted sum of the parts."""
    return math.fsum(part.value * part.weight for part in parts)
