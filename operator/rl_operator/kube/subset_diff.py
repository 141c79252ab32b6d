"""Compares an observed object with a manifest that declares a part of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl_contracts.spec.quantities import parse_quantity


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
