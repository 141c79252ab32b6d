"""Structural schemas from the spec models, for the API server.

A structural schema allows less than JSON schema: no references, no ``additionalProperties: false``
beside ``properties`` and no null type. Defaults of nested sections are written as ``{}``, and the
API server fills in the defaults of their fields; a section with rules has what the rules ask for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

from pydantic import BaseModel

from rl_contracts.spec.base import RULES

Schema = dict[str, Any]
DROPPED = ("title", "additionalProperties", "$defs", "discriminator")
OURS_TO_KEEP = ("default", "minimum", "maximum", "minLength", "maxLength", "maxItems", "pattern")
CLASS_DOC = "x-class-doc"
SPACED_OPERATOR = re.compile(r" (==|!=|&&|\|\||<=|>=|<|>|\?|:|\+) |(,) ")
"""Of CEL; in the strings of our rules none stands between spaces, and no comma."""
FAR = 65_536
"""An upper bound of as much stands in the models alone."""
DESCRIBED_DEPTH = 2
"""``spec.algorithm`` says what it is; of ``spec.algorithm.shaping`` its fields do. What a field's
own docstring says of its section stays at any depth: 60 KB have to do for a CRD."""


def structural(model: type[BaseModel]) -> Schema:
    """The structural OpenAPI schema of a model."""
    schema = model.model_json_schema(by_alias=True)
    resolved = _resolve(schema, schema.get("$defs", {}))
    assert isinstance(resolved, dict)
    _describe_classes(resolved, 0)
    _describe_once(resolved, "", {})
    _without_idle_defaults(resolved, _words(resolved))
    _without_far_bounds(resolved)
    _quote(resolved)
    _tighten(resolved)
    return resolved


def _quote(node: Any) -> None:
    """Names in descriptions stand in single backticks, as Markdown has them."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if key == "description" and isinstance(value, str):
            node[key] = value.replace("``", "`")
        elif isinstance(value, dict | list):
            _quote(value)


def _tighten(node: Any) -> None:
    """Rules without the spaces around their operators: 60 KB have to do for a CRD."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if key in ("rule", "messageExpression") and isinstance(value, str):
            node[key] = tightened(value)
        elif isinstance(value, dict | list):
            _tighten(value)


def _words(node: Any) -> set[str]:
    """Every word of the rules."""
    if isinstance(node, list):
        return {word for one in node for word in _words(one)}
    if not isinstance(node, dict):
        return set()
    own = re.findall(r"\w+", node["rule"]) if isinstance(node.get("rule"), str) else []
    return set(own).union(*(_words(one) for one in node.values()))


def _without_idle_defaults(node: Schema, words: set[str]) -> None:
    """Of lists that no rule asks for: to whoever reads the object none is as good as an empty one.

    Args:
        node: changed in place.
        words: of all rules.
    """
    for name, field in node.get("properties", {}).items():
        if field.get("default") == [] and name not in words:
            del field["default"]
        _without_idle_defaults(field, words)
    if "items" in node:
        _without_idle_defaults(node["items"], words)


def _without_far_bounds(node: Any) -> None:
    """Of numbers that no slip of the pen reaches: the operator refuses what is beyond them."""
    bound = node.get("maximum") if isinstance(node, dict) else None
    if isinstance(bound, int | float) and bound >= FAR:
        del node["maximum"]
    for value in node.values() if isinstance(node, dict) else node:
        if isinstance(value, dict | list):
            _without_far_bounds(value)


def tightened(rule: str) -> str:
    """CEL without the spaces around its operators and after its commas."""
    return SPACED_OPERATOR.sub(r"\1\2", rule)


def _describe_classes(node: Schema, depth: int) -> None:
    said = node.pop(CLASS_DOC, None)
    if said and depth <= DESCRIBED_DEPTH:
        node["description"] = said
    for field in node.get("properties", {}).values():
        _describe_classes(field, depth + 1)
    for values in (node.get("items"), node.get("additionalProperties")):
        if isinstance(values, dict):
            _describe_classes(values, depth + 1)


def _describe_once(node: Schema, path: str, known: dict[str, str]) -> None:
    """Where a section or field stands a second time, name its first place instead of describing it.

    Args:
        node: changed in place.
        path: of the node, as a user writes it.
        known: first places by what stands there.
    """
    fields = node.get("properties", {})
    if fields:
        first = known.setdefault(json.dumps(fields), path)
        if first != path:
            said = node.get("description")
            first = _beside(first, path)
            node["description"] = f"As {first}: {said}" if said else f"As {first}."
            fields = node["properties"] = _undescribed(fields)
    for name, field in fields.items():
        place = f"{path}.{name}".lstrip(".")
        first = known.setdefault(name + json.dumps(field), place)
        shorter = f"As {_beside(first, place)}."
        if first != place and len(shorter) < len(field.get("description", "")):
            node["properties"][name] = {**_undescribed(field), "description": shorter}
        else:
            _describe_once(field, place, known)
    if "items" in node:
        _describe_once(node["items"], path, known)


def _beside(first: str, path: str) -> str:
    """A path as it is named from another one: of a field beside it the name, else without spec."""
    parent, _, name = first.rpartition(".")
    return name if parent == path.rpartition(".")[0] else first.removeprefix("spec.")


def _undescribed(node: Any) -> Any:
    if isinstance(node, list):
        return [_undescribed(one) for one in node]
    if not isinstance(node, dict):
        return node
    # A field may be called so, too: then it is a schema.
    return {
        key: _undescribed(value)
        for key, value in node.items()
        if key != "description" or not isinstance(value, str)
    }


def _resolve(node: Any, definitions: Schema) -> Any:
    if isinstance(node, list):
        return [_resolve(one, definitions) for one in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target = dict(definitions[node["$ref"].rsplit("/", 1)[1]])
        if "description" in target:
            target[CLASS_DOC] = target.pop("description")
        node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
        if "description" in node:
            node.pop(CLASS_DOC, None)
    node = _without_null(node, definitions)
    node = _openapi_3_0(node)
    result = {
        key: _properties(value, definitions, required=node.get("required", ()))
        if key == "properties"
        else _resolve(value, definitions)
        for key, value in node.items()
        if key not in (*DROPPED, "const")
    }
    values = node.get("additionalProperties")
    if isinstance(values, dict):
        result["additionalProperties"] = _resolve(values, definitions)
        if "maxLength" in result:  # pydantic's word for the size of a mapping
            result["maxProperties"] = result.pop("maxLength")
    return result


def _openapi_3_0(node: Schema) -> Schema:
    """JSON schema 2020's words in those of OpenAPI 3.0, where exclusiveness is a flag."""
    renamed = dict(node)
    if "const" in renamed:
        renamed["enum"] = [renamed["const"]]
    for word in ("Minimum", "Maximum"):
        # Of an optional field the inner node has been renamed before.
        if not isinstance(renamed.get(f"exclusive{word}", True), bool):
            renamed[word.lower()] = renamed[f"exclusive{word}"]
            renamed[f"exclusive{word}"] = True
    return renamed


def _properties(fields: Schema, definitions: Schema, *, required: Collection[str]) -> Schema:
    resolved = {}
    for name, field in fields.items():
        schema = _resolve(field, definitions)
        may_be_empty = schema.get("type") == "array" and not schema.get("minItems")
        if may_be_empty and name not in required:
            schema.setdefault("default", [])  # a rule may ask for its size
        if _is_section(schema) and name not in required and _all_optional(schema):
            # Rules are tried on a default as it stands, without the defaults of its fields.
            schema.setdefault("default", _asked_for(schema))
        if schema.get("default", ...) is None:
            del schema["default"]
        if schema.get("default") == {} and "additionalProperties" in schema:
            del schema["default"]
        resolved[name] = schema
    return resolved


def _asked_for(schema: Schema) -> Schema:
    """Of the value of a section whose user wrote nothing, what its rules ask for."""
    rules = " ".join(one["rule"] for one in schema.get(RULES, ()))
    return {
        name: {**_asked_for(field), **_named(field, rules)} if _is_section(field) else written
        for name, field in schema["properties"].items()
        if re.search(rf"self\.{name}\b", rules) and (written := field.get("default")) is not None
    }


def _named(section: Schema, rules: str) -> Schema:
    """The defaults of a section's fields that an outer section's rules name."""
    return {
        name: field["default"]
        for name, field in section["properties"].items()
        if "default" in field and re.search(rf"\.{name}\b", rules)
    }


def _is_section(schema: Schema) -> bool:
    return schema.get("type") == "object" and "properties" in schema


def _all_optional(schema: Schema) -> bool:
    return not schema.get("required")


def _without_null(node: Schema, definitions: Schema) -> Schema:
    options = node.get("anyOf")
    if not options:
        return node
    wanted = [option for option in options if option.get("type") != "null"]
    assert len(wanted) == 1, f"a union has no structural schema: {node}"
    resolved = _resolve(wanted[0], definitions)
    return {**resolved, **{key: value for key, value in node.items() if key != "anyOf"}}


def as_written_by_us(schema: Schema, depth: int = 0) -> Schema:
    """The schema of what no user writes: the model keeps the bounds and what has to be there.

    Nothing is filled in. Words that a field may have are told of the outermost ones alone, which
    are selected by.
    """
    kept = {key: value for key, value in schema.items() if key not in OURS_TO_KEEP}
    if depth > 1:
        kept.pop("enum", None)
    kept.pop("required", None)
    if "properties" in kept:
        fields = kept["properties"].items()
        kept["properties"] = {name: as_written_by_us(field, depth + 1) for name, field in fields}
    if "items" in kept:
        kept["items"] = as_written_by_us(kept["items"], depth + 1)
        if keys := kept.get("x-kubernetes-list-map-keys"):  # an API server wants these to be there
            kept["items"]["required"] = keys
    return kept
