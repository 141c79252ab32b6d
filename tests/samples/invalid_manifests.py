"""Manifests with one wrong value each, made from the schema that the API server is given.

Every bound, type, pattern, enumeration, required field and size of the schema is broken once.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rl_contracts.spec.resources import API_VERSION
from rl_contracts.spec.schema import crd
from tests.samples.manifests import a_job

Schema = dict[str, Any]
Manifest = dict[str, Any]
Path = tuple[str | int, ...]
POOL: Manifest = {
    "apiVersion": API_VERSION,
    "kind": "SamplerPool",
    "metadata": {"name": "pool", "namespace": "default"},
    "spec": {"job": "job"},
}
WRONG_TYPE: dict[str, Any] = {
    "integer": "many",
    "number": "much",
    "boolean": "yes",
    "string": 7,
    "array": "list",
    "object": "map",
}
FITTING = (
    "a",
    "s3://abc/x.jsonl",
    "s3://abc/x",
    "http://abc",
    "A",
    "25%",
    "m:f",
)
"""One of them matches any pattern of the schema."""
UNFITTING = ("", " ", "!", "-")


@dataclass(frozen=True, slots=True)
class Case:
    """A manifest and the field whose value is wrong."""

    manifest: Manifest
    field: str
    value: Any
    broken: str
    """The word of the schema that the value breaks."""

    def __str__(self) -> str:
        return f"{self.manifest['kind']} {self.field} {self.broken} {str(self.value)[:40]!r}"


def cases() -> list[Case]:
    """All of them, in the order of the schema."""
    cases = []
    for written, base in ((crd.rljob(), a_job()), (crd.samplerpool(), POOL)):
        (version,) = written["spec"]["versions"]
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        for path, value, broken in _violations(spec, ("spec",)):
            cases.append(_case(base, spec, path, value, broken))
    return cases


def _case(base: Manifest, schema: Schema, path: Path, value: Any, broken: str) -> Case:
    manifest = copy.deepcopy(base)
    place: Any = manifest if len(path) == 1 else manifest["spec"]
    for key, following in itertools.pairwise(path[1:]):
        schema = _below(schema, key)
        default: Any = _sample(schema) if isinstance(following, str) else []
        if isinstance(key, int) and not place:
            place.append(default)
        elif isinstance(key, str):
            place.setdefault(key, default)
        place = place[key]
    if value is ...:
        place.pop(path[-1], None)
    elif isinstance(place, list):
        place[:] = [value]
    else:
        place[path[-1]] = value
    return Case(manifest, _text(path), value, broken)


def _violations(schema: Schema, path: Path) -> Iterator[tuple[Path, Any, str]]:
    for broken, value in _wrong(schema):
        yield path, value, broken
    for name in schema.get("required", ()):
        yield (*path, name), ..., "required"
    for name, field in schema.get("properties", {}).items():
        yield from _violations(field, (*path, name))
    if "items" in schema:
        yield from _violations(schema["items"], (*path, 0))


def _wrong(schema: Schema) -> Iterator[tuple[str, Any]]:
    """Words of the schema and a value that breaks each."""
    yield from _of_wrong_kind(schema)
    yield from _of_wrong_size(schema)


def _of_wrong_kind(schema: Schema) -> Iterator[tuple[str, Any]]:
    kind = schema.get("type")
    if kind in WRONG_TYPE:
        yield "type", WRONG_TYPE[kind]
    if schema.get("x-kubernetes-int-or-string"):
        yield "type", [1]
    if "enum" in schema:
        yield "enum", "Nonesuch"
    if "minimum" in schema:
        yield "minimum", schema["minimum"] - (not schema.get("exclusiveMinimum"))
    if "maximum" in schema:
        yield "maximum", schema["maximum"] + (not schema.get("exclusiveMaximum"))
    if "pattern" in schema:
        yield "pattern", next(text for text in UNFITTING if not re.search(schema["pattern"], text))


def _of_wrong_size(schema: Schema) -> Iterator[tuple[str, Any]]:
    if schema.get("minLength", 0) > 0:
        yield "minLength", ""
    if "maxLength" in schema:
        yield "maxLength", "a" * (schema["maxLength"] + 1)
    if schema.get("minItems", 0) > 0:
        yield "minItems", []
    if "maxItems" in schema:
        yield (
            "maxItems",
            [_numbered(schema["items"], index) for index in range(schema["maxItems"] + 1)],
        )
    if "maxProperties" in schema:
        yield "maxProperties", {f"k{index}": "1" for index in range(schema["maxProperties"] + 1)}


def _numbered(schema: Schema, number: int) -> Any:
    """An item that differs from the others where a list is a map by name."""
    sample = _sample(schema)
    if isinstance(sample, dict) and isinstance(sample.get("name"), str):
        return sample | {"name": f"n{number}"}
    return sample


def _sample(schema: Schema) -> Any:
    """A small value that the schema allows."""
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            fields = schema.get("properties", {})
            return {name: _sample(fields[name]) for name in schema.get("required", ())}
        case "array":
            return [_sample(schema["items"])] * schema.get("minItems", 0)
        case "string":
            pattern = schema.get("pattern", "")
            return next(text for text in FITTING if re.search(pattern, text))
        case "boolean":
            return False
        case _:
            return schema.get("minimum", 0) + bool(schema.get("exclusiveMinimum"))


def _below(schema: Schema, key: str | int) -> Schema:
    child: Schema = schema["items"] if isinstance(key, int) else schema["properties"][key]
    return child


def _text(path: Path) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)[1:]
