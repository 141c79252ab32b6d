"""The tokens of a trajectory as a table."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from typing import TypeVar

from rl_console.figures import number
from rl_console.output import Column, table, width
from rl_console.plain_text import escaped
from rl_contracts.queries.answers import RolloutAnswer, Tokens

T = TypeVar("T")
TOKENS_SHOWN = 512
"""Tokens of one table; ``--first-token`` shows the others."""
COLUMNS = (
    Column(heading="TOKEN", right=True),
    Column(heading="ID", right=True),
    Column(heading="BY"),
    Column(heading="VERSION", right=True),
    Column(heading="LOGPROB", right=True),
    Column(heading="GAP", right=True),
    Column(heading="ENTROPY", right=True),
    Column(heading="ADVANTAGE", right=True),
    Column(heading="RETURN", right=True, wide=True),
    Column(heading="TEXT"),
)
TRAINERS = (
    "LOGPROB is the engine's. GAP is the trainer's before the step minus it, ENTROPY the trainer's"
)
VISIBLE = str.maketrans({" ": "␣", "\n": "\\n", "\t": "\\t", "\r": "\\r"})
UNSEEN = ("Zs", "Zl", "Zp", "Cc", "Cf")
"""Unicode categories of other blanks, line breaks, controls and characters without a width."""


def token_table(tokens: Tokens, *, wide: bool) -> str:
    """A row for each token, from ``tokens.first`` on.

    Args:
        tokens: of a trajectory.
        wide: with the critic's returns.
    """
    return table(COLUMNS, list(_rows(tokens)), wide=wide, width=width())


def token_notes(given: RolloutAnswer) -> Iterator[str]:
    """What a person should know of the table."""
    tokens = given.tokens
    following = tokens.first + _count(tokens)
    if following < tokens.total:
        yield f"{tokens.total - following} more tokens: --first-token {following}"
    if given.tokenizer_problem:
        yield f"{given.tokenizer_problem.rstrip('.')}. Tokens are shown by number"
    yield given.values_problem or TRAINERS


def _rows(tokens: Tokens) -> Iterator[Sequence[str]]:
    for place in range(_count(tokens)):
        version = _at(tokens.versions, place)
        yield (
            str(tokens.first + place),
            str(tokens.ids[place]),
            "policy" if tokens.mask[place] else "masked",
            "–" if version is None else str(version),
            number(_at(tokens.logprobs, place), 4),
            number(_at(tokens.gaps, place), 3),
            number(_at(tokens.entropies, place), 3),
            number(_at(tokens.advantages, place)),
            number(_at(tokens.returns, place)),
            _visible(tokens.texts[place]) if tokens.texts else "–",
        )


def _visible(text: str) -> str:
    """The text with what nobody could see or tell from a blank written out."""
    return "".join(
        escaped(each) if unicodedata.category(each) in UNSEEN else each
        for each in text.translate(VISIBLE)
    )


def _count(tokens: Tokens) -> int:
    return min(TOKENS_SHOWN, len(tokens.ids))


def _at(values: Sequence[T | None], place: int) -> T | None:
    """An item of a list that is empty where nothing is known."""
    return values[place] if place < len(values) else None
