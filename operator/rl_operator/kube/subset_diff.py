"""Whether an observed object already is what was declared."""

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


def parse_quantity(value: float | str) -> float:
    """A resource quantity as a number; ValueError when it is none.

    What is more than ``MOST`` is that much, as the API server has it.
    """
    found = QUANTITY.match(str(value))
    if found is None:
        raise ValueError(f"{value!r} is not a quantity such as 2, 500m or 4Gi")
    number, suffix = float(found[1]), found[2] or ""
    if len(suffix) > 1 and suffix[0] in "eE" and suffix != "Ei":
        # Parsed as one, for the power alone may be more than any number.
        return min(float(f"{found[1]}e{suffix[1:]}"), MOST)
    return min(number * FACTORS[suffix], MOST)


def amount(value: Any) -> float:
    """A resource quantity as a number; 0 where it is none, which is refused elsewhere."""
    try:
        return parse_quantity(value)
    except ValueError:
        return 0.0


def holds(observed: Any, declared: Any) -> bool:
    """Whether everything declared is there; what is there beyond it belongs to others.

    Lists of named things are compared by name, since others may have added some. An empty value
    is the same as none: the API server leaves many of them out.
    """
    if observed == declared:  # first: so much of most objects is never walked through
        return True
    if isinstance(declared, Mapping):
        there = observed if isinstance(observed, Mapping) else {}
        return all(holds(there.get(key), value) for key, value in declared.items())
    if isinstance(declared, list):
        return _list_holds(observed or [], declared)
    if not declared and not observed:
        return declared is not False or observed in (None, False)
    # The API server writes quantities in a form of its own, in limits and elsewhere.
    return _same_quantity(observed, declared)


def _same_quantity(observed: Any, declared: Any) -> bool:
    if not all(isinstance(one, str | int | float) for one in (observed, declared)):
        return False
    try:
        return parse_quantity(observed) == parse_quantity(declared)
    except ValueError:
        return False


def _list_holds(observed: list[Any], declared: list[Any]) -> bool:
    if declared and all(isinstance(one, Mapping) and "name" in one for one in declared):
        by_name = {one.get("name"): one for one in observed}
        return all(holds(by_name.get(one["name"]), one) for one in declared)
    return len(observed) == len(declared) and all(
        holds(there, wanted) for there, wanted in zip(observed, declared, strict=True)
    )
