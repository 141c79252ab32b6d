"""Compares a value with a structural schema, as the API server does with strict fields."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rl_console.manifests.hints import fits, hint

Schema = Mapping[str, Any]
MOST_VALUE = 100
TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
SIZES: dict[type[str | list[Any] | dict[str, Any]], tuple[str, str]] = {
    str: ("Length", "characters"),
    list: ("Items", "items"),
    dict: ("Properties", "entries"),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a manifest, and where."""

    field: str
    message: str

    def __str__(self) -> str:
        """Field and message in one line; a rule about the whole object has no field."""
        return f"{self.field}: {self.message}" if self.field else self.message


def differences(schema: Schema, value: Any, at: str) -> Iterator[Problem]:
    """What a value has that its schema does not allow, and what it lacks.

    Args:
        schema: structural schema.
        value: as it is written, without defaults.
        at: path of the value.
    """
    if not _has_type(schema, value):
        yield Problem(at, f"must be of type {_wanted(schema)}, and {state_of(value)}")
        return
    yield from (Problem(at, message) for message in _of_value(schema, value))
    if isinstance(value, dict):
        yield from _of_object(schema, value, at)
    elif isinstance(value, list) and "items" in schema:
        yield from _of_items(schema, value, at)


def no_field(field: str, known: Iterable[str]) -> Problem:
    """A field that there is not."""
    return Problem(field, f"is no field. Fields here: {', '.join(sorted(known))}")


def state_of(value: Any) -> str:
    """What a value is, for a message, e.g. ``is null``."""
    return "is empty" if value == "" else f"is {shown(value)}"


def shown(value: Any) -> str:
    """A value for a message, as YAML and JSON have it."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MOST_VALUE else f"{text[:MOST_VALUE]}…"


def _wanted(schema: Schema) -> str:
    return "integer or string" if "x-kubernetes-int-or-string" in schema else str(schema["type"])


def _has_type(schema: Schema, value: Any) -> bool:
    if "x-kubernetes-int-or-string" in schema:
        return isinstance(value, int | str) and not isinstance(value, bool)
    if "type" not in schema:
        return True
    kind = schema["type"]
    if isinstance(value, bool):
        return bool(kind == "boolean")
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, TYPES[kind])


def _of_value(schema: Schema, value: Any) -> Iterator[str]:
    if "enum" in schema and value not in schema["enum"]:
        yield f"{state_of(value)}, and must be one of {', '.join(map(str, schema['enum']))}"
    if isinstance(value, str):
        yield from _of_text(schema, value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _of_number(schema, value)
    for kind, (word, noun) in SIZES.items():
        if isinstance(value, kind):
            size = len(value)
            yield from _of_size(schema, size, word, noun)


def _of_size(schema: Schema, size: int, word: str, noun: str) -> Iterator[str]:
    if size > schema.get(f"max{word}", size):
        yield f"has {size} {noun}, and may have at most {schema[f'max{word}']}"
    if size < schema.get(f"min{word}", 0):
        yield f"has {size} {noun}, and must have at least {schema[f'min{word}']}"


def _of_text(schema: Schema, value: str) -> Iterator[str]:
    pattern = schema.get("pattern")
    if pattern and not fits(pattern, value):
        yield f"{state_of(value)}: {hint(pattern, value)}"


def _of_number(schema: Schema, value: float) -> Iterator[str]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and (value <= low if schema.get("exclusiveMinimum") else value < low):
        bound = "above" if schema.get("exclusiveMinimum") else "at least"
        yield f"is {value}, and must be {bound} {low}"
    if high is not None and (value >= high if schema.get("exclusiveMaximum") else value > high):
        bound = "below" if schema.get("exclusiveMaximum") else "at most"
        yield f"is {value}, and must be {bound} {high}"


def _of_object(schema: Schema, value: Mapping[str, Any], at: str) -> Iterator[Problem]:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name in schema.get("required", ()):
        if name not in value:
            yield Problem(f"{at}.{name}", "is required")
    for name, inner in value.items():
        below = f"{at}.{name}"
        if name in properties or isinstance(others, Mapping):
            yield from differences(properties.get(name, others), inner, below)
        elif not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield no_field(below, properties)


def _of_items(schema: Schema, value: list[Any], at: str) -> Iterator[Problem]:
    seen: list[Any] = []
    for index, item in enumerate(value):
        yield from differences(schema["items"], item, f"{at}[{index}]")
        keys = schema.get("x-kubernetes-list-map-keys")
        if keys and isinstance(item, dict):
            key = [item.get(each) for each in keys]
            if key in seen:
                yield Problem(f"{at}[{index}]", f"is a second item with {keys[0]} {shown(key[0])}")
            seen.append(key)
