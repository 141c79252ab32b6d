"""Question answering's usual measures, over words, whatever their case, articles, punctuation.

Rajpurkar et al., SQuAD (1606.05250), §6.1: normalisation, exact match and the F1 of words.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

from rl_sampler.scorers.response import Response

ARTICLES = re.compile(r"\b(a|an|the)\b")


def words(text: str) -> list[str]:
    """The words of a text in lower case, without punctuation and English articles."""
    lower = unicodedata.normalize("NFKC", text).lower()
    plain = "".join(one for one in lower if not unicodedata.category(one).startswith("P"))
    return ARTICLES.sub(" ", plain).split()


def normalized_match(response: Response) -> float:
    """1 where answer and reference have the same words in the same order, else 0."""
    if response.answer is None:
        return 0.0
    return float(words(response.answer) == words(response.reference))


def f1(response: Response) -> float:
    """Harmonic mean of precision and recall of the answer's words, in [0, 1].

    Repeated words count as often as both sides have them. Without any word on one side: 1 where
    the other has none either, else 0.
    """
    if response.answer is None:
        return 0.0
    said, wanted = words(response.answer), words(response.reference)
    if not said or not wanted:
        return float(said == wanted)
    shared = (Counter(said) & Counter(wanted)).total()
    return 2 * shared / (len(said) + len(wanted))
