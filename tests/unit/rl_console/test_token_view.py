from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import cast

from rl_console.dashboard.shown import data
from rl_console.dashboard.token_view import token_data
from rl_contracts.queries.messages import RolloutAnswer, Tokens


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
    )
    rollout = SimpleNamespace(tokens=tokens, sequence_starts=[], turns=[])
    shown, following = token_data(cast("RolloutAnswer", rollout), most=10)
    assert following is None
    assert shown["logprobs"] == [None, None, -0.12346]
    assert shown["advantages"] == [None, None, 1.0]
    for word in ("Infinity", "NaN"):
        assert word not in data(shown)
    assert json.loads(data(shown))["ids"] == [1, 2, 3]
