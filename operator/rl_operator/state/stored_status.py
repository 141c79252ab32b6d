"""Reads a status that another version of the operator has written.

Only the operator writes statuses, and its next write corrects them: an unknown value must not keep
a job from being reconciled, e.g. after the operator was rolled back to an older version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

S = TypeVar("S", bound=BaseModel)


def read(model: type[S], raw: Any) -> S:
    """The status, without fields, values and entries that the model does not know.

    ``raw`` is changed in place.
    """
    while True:
        try:
            return model.model_validate(raw)
        except ValidationError as error:
            # One by one: removing an item of a list moves those behind it.
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        if not _leave_out(raw, first["loc"]):
            return model()


def _leave_out(raw: Any, path: Sequence[int | str]) -> bool:
    """Remove the value at a path, or the deepest existing part of the path."""
    way: list[tuple[Any, int | str]] = []
    place = raw
    for step in path:
        if not _has(place, step):
            break
        way.append((place, step))
        place = place[step]
    if not way:
        return False
    holder, step = way[-1]
    del holder[step]
    return True


def _has(place: Any, step: int | str) -> bool:
    if isinstance(place, list):
        return step in range(len(place))
    return isinstance(place, dict) and step in place
