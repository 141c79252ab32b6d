from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rl_console.actions.run_data.token_table import TRAINERS, token_notes, token_table
from rl_console.dashboard.shown import data
from rl_console.dashboard.token_view import token_data
from rl_contracts.queries.answers import RolloutAnswer, Tokens


def test_what_is_not_finite_is_null_for_the_page_s_script() -> None:
    tokens = Tokens(
        first=0,
        total=3,
        ids=[1, 2, 3],
        texts=[],
        mask=[0, 1, 1],
        logprobs=[None, -math.inf, -0.123456789],
        advantages=[None, math.nan, 1.0],
        returns=[],
        versions=[None, 1, 1],
        gaps=[None, -65504.0, 0.0123],
        entropies=[None, math.inf, 1.25],
    )
    rollout = SimpleNamespace(tokens=tokens, sequence_starts=[], turns=[], values_problem="")
    shown, following = token_data(cast("RolloutAnswer", rollout), most=10)
    assert following is None
    assert shown["logprobs"] == [None, None, -0.12346]
    assert shown["advantages"] == [None, None, 1.0]
    assert shown["gaps"] == [None, -65504.0, 0.0123]
    assert shown["entropies"] == [None, None, 1.25]
    for word in ("Infinity", "NaN"):
        assert word not in data(shown)
    assert json.loads(data(shown))["ids"] == [1, 2, 3]


def a_rollout(**values: Any) -> RolloutAnswer:
    tokens = Tokens(
        first=0,
        total=2,
        ids=[5, 7],
        texts=[],
        mask=[0, 1],
        logprobs=[None, -0.5],
        advantages=[None, 1.0],
        returns=[],
        versions=[None, 1],
        **{name: values.pop(name) for name in ("gaps", "entropies") if name in values},
    )
    rest = {"sequence_starts": [], "turns": [], "tokenizer_problem": "", "values_problem": ""}
    return cast("RolloutAnswer", SimpleNamespace(tokens=tokens, **(rest | values)))


def test_the_table_of_tokens_has_gap_and_entropy_where_they_are_stored() -> None:
    known = a_rollout(gaps=[None, 0.0125], entropies=[None, 1.5])
    heading, *rows = token_table(known.tokens, wide=False).splitlines()
    place = {name: heading.split().index(name) for name in ("GAP", "ENTROPY")}
    assert rows[-1].split()[place["GAP"]] == "0.013"
    assert rows[-1].split()[place["ENTROPY"]] == "1.5"
    assert rows[0].split()[place["GAP"]] == "–"
    assert list(token_notes(known)) == [TRAINERS]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" a\n", "␣a\\n"),
        ("-", "-"),
        ("\u00a0", "\\u00a0"),
        ("\u3000\u3000答", "\\u3000\\u3000答"),
        ("\x0b", "\\x0b"),
        ("\u2028", "\\u2028"),
        ("\u200b", "\\u200b"),
        ("\U000e0001", "\\U000e0001"),
    ],
)
def test_the_table_of_tokens_shows_every_blank(text: str, shown: str) -> None:
    tokens = a_rollout().tokens.model_copy(update={"texts": [text, "x"]})
    rows = token_table(tokens, wide=False).splitlines()
    assert rows[1].split()[-1] == shown
    assert rows[1].index(shown) == rows[0].index("TEXT")


def test_where_nothing_is_stored_page_and_table_say_why() -> None:
    without = a_rollout(values_problem="Only the critic was trained.")
    assert list(token_notes(without)) == ["Only the critic was trained."]
    shown, _ = token_data(without, most=10)
    assert (shown["gaps"], shown["entropies"]) == ([], [])
    assert shown["lacking"] == "Only the critic was trained."
