"""Scorers: each says how good a response is, in [0, 1]."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rl_contracts.documents.rollout import RewardPart
from rl_contracts.spec.reward import Reward
from rl_sampler.answers import ANSWERS
from rl_sampler.scorers.exact_match import exact_match
from rl_sampler.scorers.format import well_formed
from rl_sampler.scorers.mathematics import mathematics
from rl_sampler.scorers.question_answering import f1, normalized_match
from rl_sampler.scorers.response import Response, ScoringError

Scorer = Callable[[Response], float]

SCORERS: dict[str, Scorer] = {
    "ExactMatch": exact_match,
    "F1": f1,
    "Format": well_formed,
    "Math": mathematics,
    "NormalizedMatch": normalized_match,
}
"""By the kind that a manifest names."""


def unknown_scorers(reward: Reward) -> list[str]:
    """Kinds that the manifest names and nobody here knows, in its order."""
    return [scorer.kind for scorer in reward.scorers if scorer.kind not in SCORERS]


def score(text: str, *, reference: str, reward: Reward) -> list[RewardPart]:
    """Ask every scorer of the manifest. Not for an event loop: some take seconds.

    Args:
        text: the decoded response.
        reference: the dataset's answer.
        reward: scorers and answer schema, as the manifest has them.

    Raises:
        ScoringError: a scorer answered outside [0, 1]; neither this nor any other exception of a
            scorer is ever a reward.
    """
    response = Response(
        text=text, answer=ANSWERS[reward.answer_schema](text), reference=reference
    )  # fmt: skip
    return [
        RewardPart(scorer=one.kind, value=_ask(one.kind, response), weight=one.weight)
        for one in reward.scorers
    ]


def total(parts: Sequence[RewardPart]) -> float:
    """The weighted sum of the parts."""
    return math.fsum(part.value * part.weight for part in parts)


def _ask(kind: str, response: Response) -> float:
    value = SCORERS[kind](response)
    if not 0.0 <= value <= 1.0:
        raise ScoringError(f"scorer {kind} answered {value}, which is not in [0, 1]")
    return value
