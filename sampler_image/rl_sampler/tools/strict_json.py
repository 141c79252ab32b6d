"""JSON as its standard has it, without Python's ``NaN`` and ``Infinity``. Pure."""

from __future__ import annotations

import json
import math


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def _finite(written: str) -> float:
    """A number; one that is too large would be sent as ``Infinity``."""
    number = float(written)
    return number if math.isfinite(number) else _refuse(written)


DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
"""Raises ValueError where a number is not finite, as for all that is not JSON."""
