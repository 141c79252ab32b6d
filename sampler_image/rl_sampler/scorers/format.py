"""Does the response mark its answer as it should?"""

from __future__ import annotations

from rl_sampler.scorers.answers import CLOSE, OPEN
from rl_sampler.scorers.response import Response


def well_formed(response: Response) -> float:
    """1 where the text has exactly one ``<answer>`` and one ``</answer>`` after it, else 0."""
    text = response.text
    once = text.count(OPEN) == 1 and text.count(CLOSE) == 1
    return float(once and text.index(OPEN) < text.index(CLOSE))
