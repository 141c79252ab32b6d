"""How short is the response?"""

from __future__ import annotations

from rl_sampler.scorers.response import Response


def shortness(response: Response) -> float:
    """The share of ``maxTokensPerTurn`` that was not needed, in [0, 1]: 0 where it was all of it.

    With a negative weight long responses are worth more.
    """
    return max(0.0, 1.0 - response.tokens / response.most_tokens)
