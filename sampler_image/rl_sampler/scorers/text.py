"""Scorers that compare text: exact match, SQuAD's measures, the answer's format, and the length.

Rajpurkar et al., SQuAD (1606.05250), §6.1: normalisation, exact match and the F1 of words.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

from rl_sampler.scorers.answers import CLOSE, OPEN
from rl_sampler.scorers.response import Response

ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalised(text: str) -> str:
    """Unicode NFKC, with each run of white space as a space, and none at the ends."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def exact_match(response: Response) -> float:
    """``ExactMatch``: 1 where answer and reference are the same normalised text, else 0."""
    if response.answer is None:
        return 0.0
    return float(normalised(response.answer) == normalised(response.reference))


def words(text: str) -> list[str]:
    """The words of a text in lower case, without punctuation and English articles."""
    lower = unicodedata.normalize("NFKC", text).lower()
    plain = "".join(sign for sign in lower if not unicodedata.category(sign).startswith("P"))
    return ARTICLES.sub(" ", plain).split()


def normalized_match(response: Response) -> float:
    """``NormalizedMatch``: 1 where answer and reference are the same sequence of words, else 0."""
    if response.answer is None:
        return 0.0
    return float(words(response.answer) == words(response.reference))


def f1(response: Response) -> float:
    """``F1``: harmonic mean of precision and recall of the answer's words, in [0, 1].

    A repeated word counts as often as both texts have it. Where a text has no word: 1 if the other
    has none either, else 0.
    """
    if response.answer is None:
        return 0.0
    answer, reference = words(response.answer), words(response.reference)
    if not answer or not reference:
        return float(answer == reference)
    shared = (Counter(answer) & Counter(reference)).total()
    return 2 * shared / (len(answer) + len(reference))


def well_formed(response: Response) -> float:
    """``Format``: 1 where the text has exactly one ``<answer>…</answer>``, else 0."""
    text = response.text
    once = text.count(OPEN) == 1 and text.count(CLOSE) == 1
    return float(once and text.index(OPEN) < text.index(CLOSE))


def shortness(response: Response) -> float:
    """``Length``: the unused share of ``maxTokensPerTurn``, in [0, 1]; 0 where all was used.

    With a negative weight long responses get a higher reward.
    """
    return max(0.0, 1.0 - response.tokens / response.max_tokens)
