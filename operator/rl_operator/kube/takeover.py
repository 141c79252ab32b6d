"""Makes what was created by a POST the property of the manager that applies it from then on.

A POST costs the API server half of what an apply does. But what it wrote belongs to an update, and
an apply that leaves a field of that out does not take it away. So before the first apply the fields
are handed over: the same entry of ``managedFields``, of an apply now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Entry = dict[str, Any]
Fields = Mapping[str, Any]
CREATED, APPLIED = "Update", "Apply"


def handed_over(
    entries: Iterable[Mapping[str, Any]], *, manager: str, left: Sequence[str], heir: str
) -> list[Entry] | None:
    """``managedFields`` after the hand-over; None when there is nothing to hand over.

    Args:
        entries: those of the object.
        manager: who has created it, and is about to apply it.
        left: fields of the spec that are others' from now on.
        heir: who has these until somebody writes them.
    """
    found = {_identity(entry): dict(entry) for entry in entries}
    created = found.pop((manager, CREATED, ""), None)
    if created is None:
        return None
    fields = created["fieldsV1"]
    spec = fields.get("f:spec", {})
    marks = {f"f:{one}" for one in left}
    kept = fields | {"f:spec": {key: one for key, one in spec.items() if key not in marks}}
    given = {key: one for key, one in spec.items() if key in marks}
    _gain(found, created | {"operation": APPLIED}, kept if spec else fields)
    if given:
        _gain(found, created | {"manager": heir}, {"f:spec": given})
    return list(found.values())


def _gain(found: dict[tuple[str, str, str], Entry], entry: Entry, fields: Fields) -> None:
    """Let the manager of an entry have fields beside those that it has."""
    there = found.get(_identity(entry), entry | {"fieldsV1": {}})
    found[_identity(entry)] = there | {"fieldsV1": _union(there["fieldsV1"], fields)}


def _union(one: Fields, other: Fields) -> Fields:
    shared = {key: _union(one[key], other[key]) for key in one.keys() & other.keys()}
    return {**one, **other, **shared}


def _identity(entry: Mapping[str, Any]) -> tuple[str, str, str]:
    return entry["manager"], entry["operation"], entry.get("subresource", "")
