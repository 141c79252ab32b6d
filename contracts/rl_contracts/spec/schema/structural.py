"""Structural schemas from the spec models, for the API server.

A structural schema allows less than JSON schema: no references, no ``additionalProperties: false``
beside ``properties`` and no null type. Defaults of nested sections are written as ``{}``, and the
API server fills in the defaults of their fields; a section with rules has what its rules read.

Items of lists get no defaults: the API server would write them into the object, and GitOps tools,
which compare objects with manifests, would take them for a difference for ever. The models fill
them in when a manifest is parsed, and rules read them with ``orValue``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from typing import Any

from pydantic import BaseModel

from rl_contracts.spec.base import RULES

Schema = dict[str, Any]
DROPPED = ("title", "additionalProperties", "$defs", "discriminator")
MANIFEST_ONLY = ("default", "minimum", "maximum", "minLength", "maxLength", "maxItems", "pattern")
"""Words that a status does without: the operator alone writes it, and its models check it."""
CLASS_DOC = "x-class-doc"


def structural(model: type[BaseModel]) -> Schema:
    """The structural OpenAPI schema of a model."""
    resolved = described(model)
    _visit(resolved["properties"]["spec"], _explain)
    _without_idle_defaults(resolved, _words(resolved))
    _visit(resolved, _without_item_defaults)
    return resolved


def described(model: type[BaseModel]) -> Schema:
    """The schema of a model with all its defaults, before it is made fit for the API server."""
    schema = model.model_json_schema(by_alias=True)
    resolved = _resolve(schema, schema.get("$defs", {}))
    assert isinstance(resolved, dict)
    _visit(resolved, _describe)
    return resolved


def _visit(node: Schema, change: Callable[[Schema], None]) -> None:
    """Apply a change to every schema in a schema, the outermost first."""
    change(node)
    values = [node.get("items"), node.get("additionalProperties")]
    for inner in (*node.get("properties", {}).values(), *values):
        if isinstance(inner, dict):
            _visit(inner, change)


def _describe(node: Schema) -> None:
    """A section without a description of its own has its class's; lines are joined."""
    own = node.pop(CLASS_DOC, "")
    text = node.get("description") or own
    if text:
        node["description"] = " ".join(text.replace("``", "`").split())


def _explain(node: Schema) -> None:
    """Add default and range to the descriptions of fields: ``kubectl explain`` shows neither."""
    for field in node.get("properties", {}).values():
        facts = [f"Default: {shown(field['default'])}."] if has_plain_default(field) else []
        if bounds := range_of(field):
            facts.append(f"Range: {bounds}.")
        field["description"] = " ".join([field.get("description", ""), *facts]).strip()


def has_plain_default(field: Schema) -> bool:
    """Whether a field has a default that says something: not that of a section or an empty one."""
    return field.get("default") not in (None, "", [], {}) and not is_section(field)


def shown(value: Any) -> str:
    """A value as a manifest has it."""
    return value if isinstance(value, str) else json.dumps(value)


def range_of(field: Schema) -> str:
    """Bounds of a number in words, empty without any."""
    low, high = field.get("minimum"), field.get("maximum")
    above = f"above {_number(low)}" if field.get("exclusiveMinimum") else None
    below = f"below {_number(high)}" if field.get("exclusiveMaximum") else None
    if above is None and below is None and None not in (low, high):
        return f"{_number(low)} to {_number(high)}"
    least = above or (f"at least {_number(low)}" if low is not None else "")
    most = below or (f"at most {_number(high)}" if high is not None else "")
    return ", ".join(filter(None, (least, most)))


def _number(value: Any) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:g}"


def _without_item_defaults(node: Schema) -> None:
    if isinstance(node.get("items"), dict):
        _visit(node["items"], lambda inner: inner.pop("default", None))


def _words(node: Any) -> set[str]:
    """Every word of the rules."""
    if isinstance(node, list):
        return {word for item in node for word in _words(item)}
    if not isinstance(node, dict):
        return set()
    own = re.findall(r"\w+", node["rule"]) if isinstance(node.get("rule"), str) else []
    return set(own).union(*(_words(value) for value in node.values()))


def _without_idle_defaults(node: Schema, words: set[str]) -> None:
    """Remove the default [] of lists that no rule reads: a reader of the object needs none.

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


def _resolve(node: Any, definitions: Schema) -> Any:
    if isinstance(node, list):
        return [_resolve(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    node = _openapi_3_0(_without_null(_referenced(node, definitions), definitions))
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


def _referenced(node: Schema, definitions: Schema) -> Schema:
    """A schema in place of a reference to it."""
    if "$ref" not in node:
        return node
    target = dict(definitions[node["$ref"].rsplit("/", 1)[1]])
    if "description" in target:
        target[CLASS_DOC] = target.pop("description")
    return {**target, **{key: value for key, value in node.items() if key != "$ref"}}


def _openapi_3_0(node: Schema) -> Schema:
    """JSON schema 2020's words in those of OpenAPI 3.0, where exclusiveness is a flag."""
    renamed = dict(node)
    if "const" in renamed:
        renamed["enum"] = [renamed["const"]]
    for word in ("Minimum", "Maximum"):
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
        if is_section(schema) and name not in required and _all_optional(schema):
            # Rules are tried on a default as it stands, without the defaults of its fields.
            schema.setdefault("default", _read_by_rules(schema))
        if schema.get("default", ...) is None:
            del schema["default"]
        if schema.get("default") == {} and "additionalProperties" in schema:
            del schema["default"]
        resolved[name] = schema
    return resolved


def _read_by_rules(schema: Schema) -> Schema:
    """What a section's rules read, of the value of a section whose user wrote nothing."""
    expressions = " ".join(text for rule in schema.get(RULES, ()) for text in rule.values())
    return {
        name: {**_read_by_rules(field), **_named(field, expressions)}
        if is_section(field)
        else written
        for name, field in schema["properties"].items()
        if re.search(rf"self\.{name}\b", expressions)
        and (written := field.get("default")) is not None
    }


def _named(section: Schema, expressions: str) -> Schema:
    """The defaults of a section's fields that an outer section's rules name."""
    return {
        name: field["default"]
        for name, field in section["properties"].items()
        if "default" in field and re.search(rf"\.{name}\b", expressions)
    }


def is_section(schema: Schema) -> bool:
    """Whether a schema is that of an object with fields of its own."""
    return schema.get("type") == "object" and "properties" in schema


def _all_optional(schema: Schema) -> bool:
    return not schema.get("required")


def _without_null(node: Schema, definitions: Schema) -> Schema:
    options = node.get("anyOf")
    if not options:
        return node
    wanted = [option for option in options if option.get("type") != "null"]
    assert len(wanted) == 1, f"a union has no structural schema: {node}"
    # Not resolved here: what is resolved twice gets defaults where there are none.
    inner = _referenced(wanted[0], definitions)
    return {**inner, **{key: value for key, value in node.items() if key != "anyOf"}}


def as_reported(schema: Schema) -> Schema:
    """The schema of a status: nothing is filled in, bounded or required."""
    kept = {key: value for key, value in schema.items() if key not in MANIFEST_ONLY}
    kept.pop("required", None)
    if "properties" in kept:
        fields = kept["properties"].items()
        kept["properties"] = {name: as_reported(field) for name, field in fields}
    if "items" in kept:
        kept["items"] = as_reported(kept["items"])
        if keys := kept.get("x-kubernetes-list-map-keys"):  # an API server wants these to be there
            kept["items"]["required"] = keys
    return kept
