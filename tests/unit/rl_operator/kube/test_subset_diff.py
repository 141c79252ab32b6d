"""Whether an observed object already is what was declared."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.spec.quantities import MOST, parse_quantity
from rl_operator.kube.subset_diff import contains

CASES: dict[str, tuple[Any, Any, bool]] = {
    "defaults of the server": ({"a": 1, "b": 2}, {"a": 1}, True),
    "another value": ({"a": 1}, {"a": 2}, False),
    "missing": ({}, {"a": 1}, False),
    "an empty value is none": ({}, {"a": 0, "b": "", "c": {}, "d": []}, True),
    "an empty value is not some": ({"a": 3}, {"a": 0}, False),
    "false is not nothing": ({"a": True}, {"a": False}, False),
    "false may be left out": ({}, {"a": False}, True),
    "named things in another order": (
        {"l": [{"name": "y", "v": 2, "z": 1}, {"name": "x", "v": 1}]},
        {"l": [{"name": "x", "v": 1}, {"name": "y", "v": 2}]},
        True,
    ),
    "a named thing of others": (
        {"l": [{"name": "x"}, {"name": "theirs"}]},
        {"l": [{"name": "x"}]},
        True,
    ),
    "a named thing is gone": ({"l": []}, {"l": [{"name": "x"}]}, False),
    "plain lists are whole": ({"l": ["a", "b"]}, {"l": ["a"]}, False),
    "the server's form of a quantity": (
        {"limits": {"cpu": "1", "memory": "1Gi"}},
        {"limits": {"cpu": "1000m", "memory": 2**30}},
        True,
    ),
    "a quantity that is no text": ({"limits": {"cpu": "500m"}}, {"limits": {"cpu": 0.5}}, True),
    "a quantity in small units": ({"cpu": "1m"}, {"cpu": "1000u"}, True),
    "another quantity": ({"limits": {"cpu": "2"}}, {"limits": {"cpu": "1500m"}}, False),
    "no quantity yet": ({"limits": {}}, {"limits": {"cpu": "1"}}, False),
}


@pytest.mark.parametrize(("observed", "declared", "same"), CASES.values(), ids=CASES.keys())
def test_holds(observed: Any, declared: Any, same: bool) -> None:
    assert contains(observed, declared) is same


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", 2),
        (3, 3),
        ("500m", 0.5),
        ("4Gi", 4 * 2**30),
        ("1e3", 1000),
        ("1.5k", 1500),
        ("1E", 1e18),
        ("1E3", 1000),
        ("25e-1", 2.5),
        ("+5u", 5e-6),
        ("1e-400", 0),
        ("1e400", MOST),
        ("0e400", 0),
        ("9" * 400, MOST),
        ("9" * 400 + "Ei", MOST),
    ],
)
def test_a_quantity_is_a_number(text: str | int, value: float) -> None:
    assert parse_quantity(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "much", "1 Gi", "-1", "1gb", "Gi"])
def test_malformed_quantities_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        parse_quantity(text)
