"""How many examples of a property, or cases of a table, are tried: more of them in the soak."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

EXPLORED = 20
DEFAULT = 100
"""Hypothesis' own."""
EXPLORED_DEFAULT = 10 * DEFAULT
"""Examples under the profile ``explore`` of a property that sets no number."""


def examples(count: int) -> int:
    """So many in the test tiers, and ``EXPLORED`` times as many under the profile ``explore``."""
    return count * EXPLORED if settings.get_current_profile_name() == "explore" else count


def first(count: int, cases: Iterable[Any]) -> list[Any]:
    """The cases of a table; those after the first ``count`` are for the soak only."""
    return [
        case if number < count else pytest.param(*_values(case), marks=pytest.mark.soak)
        for number, case in enumerate(cases)
    ]


def _values(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) else (case,)
