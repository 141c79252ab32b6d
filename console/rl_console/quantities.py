"""Kubernetes quantities as numbers."""

from __future__ import annotations

import re

DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
FACTORS = {
    **{unit: 10.0**exponent for unit, exponent in DECIMAL.items()},
    **{f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", start=1)},
}
QUANTITY = re.compile(r"^([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)$")


def number_of(quantity: str | int) -> float:
    """The value of a quantity, e.g. 0.5 of ``500m``; raises ValueError for another text."""
    match = QUANTITY.match(str(quantity))
    if match is None or match[2] not in FACTORS:
        raise ValueError(f"{quantity!r} is no quantity")
    return float(match[1]) * FACTORS[match[2]]
