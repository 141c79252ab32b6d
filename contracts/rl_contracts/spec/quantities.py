"""Kubernetes resource quantities as numbers."""

from __future__ import annotations

import re
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
