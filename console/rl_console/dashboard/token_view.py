"""Tokens of a rollout for the page that colours them."""

from __future__ import annotations

import math
from typing import Any

from rl_console.plain_text import plain
from rl_contracts.queries.answers import RolloutAnswer

LONGEST_TOKEN = 200


def token_data(rollout: RolloutAnswer, *, most: int) -> tuple[dict[str, Any], int | None]:
    """Arrays for the page's script, and the first token of the next page.

    Args:
        rollout: with its tokens.
        most: tokens of one page.
    """
    tokens = rollout.tokens
    count = min(most, len(tokens.ids))
    last = tokens.first + count
    texts = [plain(each, longest=LONGEST_TOKEN) for each in tokens.texts[:count]]
    data = {
        "first": tokens.first,
        "total": tokens.total,
        "ids": tokens.ids[:count],
        "texts": texts,
        "mask": tokens.mask[:count],
        "logprobs": _short(tokens.logprobs[:count]),
        "advantages": _short(tokens.advantages[:count]),
        "returns": _short(tokens.returns[:count]),
        "gaps": _short(tokens.gaps[:count]),
        "entropies": _short(tokens.entropies[:count]),
        "lacking": rollout.values_problem,
        "versions": tokens.versions[:count],
        "starts": [each for each in rollout.sequence_starts if tokens.first <= each < last],
        "turns": [
            {"start": turn.response.start, "number": number}
            for number, turn in enumerate(rollout.turns, start=1)
            if tokens.first <= turn.response.start < last
        ],
    }
    return data, last if last < tokens.total else None


def _short(values: list[float | None]) -> list[float | None]:
    """Five digits; None for what is not finite, which JSON does not know."""
    return [
        float(f"{value:.5g}") if value is not None and math.isfinite(value) else None
        for value in values
    ]
