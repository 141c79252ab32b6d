"""Is the answer the reference?"""

from __future__ import annotations

import unicodedata

from rl_sampler.scorers.response import Response


def normalised(text: str) -> str:
    """Unicode NFKC, with runs of white space as one space and none at the ends."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def exact_match(response: Response) -> float:
    """1 where answer and reference are the same normalised text, else 0."""
    if response.answer is None:
        return 0.0
    return float(normalised(response.answer) == normalised(response.reference))
