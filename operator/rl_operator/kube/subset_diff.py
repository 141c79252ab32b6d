"""Compares an observed object with a manifest that declares a part of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

QUANTITY = re.compile(
    r"^\+?([0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"([eE][+-]?[0-9]+|n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"
)
FACTORS = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
    "Ei": 2.0**60,
}
MOST = 2.0**63
"""The API server caps quantities here."""


def parse_quantity(value: float | str) -> float:
    """A resource quantity as a number, capped at ``MOST``.

    ``kubernetes.utils.quantity`` is not used: it accepts values that the API server refuses, such
    as signs, spaces, ``nan`` and ``1_0``.

    Raises:
        ValueError: the text is not a quantity.
    """
    match = QUANTITY.match(str(value))
    if match is None:
        raise ValueError(f"{value!r} is not a quantity such as 2, 500m or 4Gi")
    number, suffix = float(match[1]), match[2] or ""
    if len(suffix) > 1 and suffix[0] in "eE" and suffix != "Ei":
        # Parsed as a whole: the power alone may exceed any float.
        return min(float(f"{match[1]}e{suffix[1:]}"), MOST)
    return min(number * FACTORS[suffix], MOST)


def amount(value: Any) -> float:
    """A resource quantity as a number; 0 for anything else, which is refused elsewhere."""
    try:
        return parse_quantity(value)
    except ValueError:
        return 0.0


def contains(observed: Any, declared: Any) -> bool:
    """Whether the observed object holds everything that is declared; other fields are ignored.

    Lists of named items are compared by name, because others may have added items. An empty value
    equals a missing one: the API server leaves many of them out.
    """
    if observed == declared:  # most parts of most objects are equal
        return True
    if isinstance(declared, Mapping):
        values = observed if isinstance(observed, Mapping) else {}
        return all(contains(values.get(key), value) for key, value in declared.items())
    if isinstance(declared, list):
        return _list_contains(observed or [], declared)
    if not declared and not observed:
        return declared is not False or observed in (None, False)
    # The API server rewrites quantities, in limits and elsewhere.
    return _same_quantity(observed, declared)


def _same_quantity(observed: Any, declared: Any) -> bool:
    if not all(isinstance(value, str | int | float) for value in (observed, declared)):
        return False
    try:
        return parse_quantity(observed) == parse_quantity(declared)
    except ValueError:
        return False


def _list_contains(observed: list[Any], declared: list[Any]) -> bool:
    if declared and all(isinstance(item, Mapping) and "name" in item for item in declared):
        by_name = {item.get("name"): item for item in observed}
        return all(contains(by_name.get(item["name"]), item) for item in declared)
    return len(observed) == len(declared) and all(
        contains(seen, wanted) for seen, wanted in zip(observed, declared, strict=True)
    )
