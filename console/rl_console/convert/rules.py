"""What becomes of an option: kinds of rules, and the draft that they fill."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["mapped", "by hand", "not needed", "not available", "unknown"]
BUCKET = "s3://your-bucket"
SCHEMES = ("s3://", "hf://")
HUB_NAME = re.compile(r"^[\w.-]+/[\w.-]+$")
PART = re.compile(r"^(\w+)(?:\[(\d+)\])?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What became of one option."""

    option: str
    value: str
    state: State
    field: str = ""
    """Field of the manifest, if there is one."""
    note: str = ""
    """The reason, or what is left to do."""


@dataclass(slots=True)
class Draft:
    """A manifest that is being made, and what became of each option."""

    spec: dict[str, Any] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    given: dict[str, Any] = field(default_factory=dict)
    """All options by name; rules of one may depend on others."""
    name: str = "converted"

    def put(self, path: str, value: Any) -> None:
        """Set a field of the spec, e.g. ``samplers[0].template.engine.args``."""
        place: Any = self.spec
        *outer, last = [_part(part) for part in path.split(".")]
        for name, index in outer:
            place = _enter(place, name, index)
        name, index = last
        if index is None:
            place[name] = value
        else:
            items = place.setdefault(name, [])
            items.extend({} for _ in range(index + 1 - len(items)))
            items[index] = value

    def get(self, path: str) -> Any:
        """A field of the spec; None where it is not set."""
        place: Any = self.spec
        for name, index in map(_part, path.split(".")):
            place = place.get(name) if isinstance(place, dict) else None
            if index is not None and isinstance(place, list):
                place = place[index] if index < len(place) else None
        return place

    def add(self, path: str, value: Any) -> None:
        """Append to a list of the spec."""
        self.put(path, [*(self.get(path) or []), value])


def _part(text: str) -> tuple[str, int | None]:
    match = PART.match(text)
    assert match is not None, text
    return match[1], None if match[2] is None else int(match[2])


def _enter(place: Any, name: str, index: int | None) -> Any:
    if index is None:
        return place.setdefault(name, {})
    items = place.setdefault(name, [])
    items.extend({} for _ in range(index + 1 - len(items)))
    return items[index]


Outcome = tuple[State, str, str]
"""State, field and note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What becomes of an option, and the fields that it may set."""

    apply: Callable[[Draft, Any], Outcome]
    fields: tuple[str, ...] = ()
    state: State = "mapped"
    """What usually becomes of it."""


Rules = Mapping[str, Rule]


def to(path: str, *, note: str = "", convert: Callable[[Any], Any] | None = None) -> Rule:
    """The option is a field, with the value as it is or converted."""

    def apply(draft: Draft, value: Any) -> Outcome:
        draft.put(path, convert(value) if convert else value)
        return "mapped", path, note

    return Rule(apply=apply, fields=(path,))


def choice(path: str, values: Mapping[str, Any], *, note: str = "") -> Rule:
    """The option's values, in any case, are others here; a mapping sets several fields."""

    def apply(draft: Draft, value: Any) -> Outcome:
        wanted = values.get(str(value).lower())
        if wanted is None:
            return "by hand", path, f"{value} is none of {', '.join(values)}"
        for place, each in (wanted if isinstance(wanted, Mapping) else {path: wanted}).items():
            draft.put(place, each)
        return "mapped", path, note

    return Rule(apply=apply, fields=(path,))


def when(values: Mapping[str, Any], *, note: str = "", otherwise: str = "the default") -> Rule:
    """A truth: if it is true, fields are set."""
    first = next(iter(values))

    def apply(draft: Draft, value: Any) -> Outcome:
        if not truth(value):
            return "not needed", "", otherwise
        for path, each in values.items():
            draft.put(path, each)
        return "mapped", first, note

    return Rule(apply=apply, fields=tuple(values))


def folder(path: str, kind: str) -> Rule:
    """A model or a file: names of the hub and URIs as they are, other paths in a bucket."""

    def apply(draft: Draft, value: Any) -> Outcome:
        text = str(value)
        if text.startswith(SCHEMES):
            draft.put(path, text)
            return "mapped", path, ""
        if kind == "models" and HUB_NAME.match(text):
            draft.put(path, f"hf://{text}")
            return "mapped", path, ""
        name = text.rstrip("/").rpartition("/")[2] or kind
        draft.put(path, f"{BUCKET}/{kind}/{name}")
        return "by hand", path, f"upload {text} to this place, or change it"

    return Rule(apply=apply, fields=(path,))


def needless(reason: str) -> Rule:
    """Nothing has to be set."""
    return Rule(apply=lambda draft, value: ("not needed", "", reason), state="not needed")


def absent(reason: str) -> Rule:
    """There is no such option."""
    return Rule(apply=lambda draft, value: ("not available", "", reason), state="not available")


def by_hand(path: str, note: str) -> Rule:
    """A person has to decide."""
    return Rule(apply=lambda draft, value: ("by hand", path, note), fields=(path,), state="by hand")


def truth(value: Any) -> bool:
    """Whether a value means yes."""
    return str(value).lower() in ("true", "1", "yes", "on")
