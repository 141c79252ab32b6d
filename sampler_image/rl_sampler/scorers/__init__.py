"""Scorers: each rates a response with a value in [0, 1]; ``Environment`` gives any number."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence

from rl_contracts.documents.rollout import RewardPart
from rl_contracts.spec.agent.environment import ENVIRONMENT
from rl_contracts.spec.reward import Reward
from rl_sampler.scorers.reading import read
from rl_sampler.scorers.response import Response, ScoringError
from rl_sampler.scorers.text import exact_match, f1, normalized_match, shortness, well_formed

Scorer = Callable[[Response], float]
"""Blocking, so call it in a thread."""
AsyncScorer = Callable[[Response], Awaitable[float]]


def posted(response: Response) -> float:
    """Scorer ``Program``: the reward that the program of the episode posted."""
    if response.reported is None:
        raise ScoringError(
            "scorer Program needs the reward that a program posts: use it with agent.kind Program"
        )
    return response.reported


def earned(response: Response) -> float:
    """Scorer ``Environment``: the sum of the rewards of the environment's steps; any number."""
    if response.earned is None:
        raise ScoringError(
            "scorer Environment needs the rewards of an environment's steps: use it with "
            "agent.kind Environment"
        )
    return response.earned


SCORERS: dict[str, Scorer] = {
    "Environment": earned,
    "ExactMatch": exact_match,
    "F1": f1,
    "Format": well_formed,
    "Length": shortness,
    "NormalizedMatch": normalized_match,
    "Program": posted,
}
"""Built-in scorers that compare text, by the manifest's ``kind``. ``Code`` and ``Math`` are added
where the pod has the containers that they need."""


class Scorers:
    """The built-in scorers, and those that the manifest adds."""

    def __init__(self, added: Mapping[str, AsyncScorer] | None = None) -> None:
        """Add scorers, by kind, to the built-in ones."""
        self._added = added or {}

    @property
    def known(self) -> list[str]:
        """All kinds, sorted."""
        return sorted([*SCORERS, *self._added])

    def unknown(self, reward: Reward) -> list[str]:
        """Kinds in a manifest that this sampler does not have, in the manifest's order."""
        return [scorer.kind for scorer in reward.scorers if scorer.kind not in self.known]

    async def score(self, response: Response, *, reward: Reward) -> list[RewardPart]:
        """Score a response with every scorer of a manifest, concurrently.

        Each scorer gets the answer that the reward's answer schema reads for it.

        Raises:
            ScoringError: a scorer returned a value outside [0, 1]. Neither this nor any other
                exception of a scorer is ever a reward.
        """
        values = await asyncio.gather(
            *(
                self._ask(
                    scorer.kind, read(response, schema=reward.answer_schema, kind=scorer.kind)
                )
                for scorer in reward.scorers
            )
        )
        return [
            RewardPart(scorer=scorer.kind, value=value, weight=scorer.weight)
            for scorer, value in zip(reward.scorers, values, strict=True)
        ]

    async def _ask(self, kind: str, response: Response) -> float:
        added = self._added.get(kind)
        if added is not None:
            value = await added(response)
        else:
            value = await asyncio.to_thread(SCORERS[kind], response)
        if kind == ENVIRONMENT and added is None and math.isfinite(value):
            return value
        if not 0.0 <= value <= 1.0:
            raise ScoringError(f"scorer {kind} returned {value}, which is not in [0, 1]")
        return value


def total(parts: Sequence[RewardPart]) -> float:
    """The reward: the sum of the parts' values times their weights."""
    return math.fsum(part.value * part.weight for part in parts)
