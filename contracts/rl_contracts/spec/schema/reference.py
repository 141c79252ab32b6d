"""The reference page of every field, as Markdown, from the spec models."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rl_contracts.spec.base import RULES
from rl_contracts.spec.resources import API_VERSION, RLJob, SamplerPool
from rl_contracts.spec.schema.structural import (
    Schema,
    described,
    has_plain_default,
    is_section,
    range_of,
    shown,
)

INTRODUCTION = f"""<!-- Generated from contracts/rl_contracts/spec by `make generate`. -->
# Fields

Every field of `{API_VERSION}`, generated from the models that the custom resource definitions come
from. On a cluster `kubectl explain rljob.spec.training` shows the same.

*Default* is what an unset field means; *required* marks a field that must be written. An object's
own rules stand below its table: the API server refuses a manifest that breaks one, with that
message; `<...>` stands for the value that the manifest has. Fields of a status are written by the
operator alone.
"""
COMPUTED = re.compile(r"'(.*)'\.format\(\[(.*)\]\)")
SIZED = re.compile(r"size\(self\.(\w+)\)")
CALLED = re.compile(r"\.(orValue|split)\([^)]*\)(\[0\])?")
TEXTS = {"integer": "integer", "number": "number", "boolean": "boolean", "string": "string"}


def page() -> str:
    """The whole page."""
    lines = [INTRODUCTION]
    for model in (RLJob, SamplerPool):
        schema = described(model)
        known: dict[str, str] = {}
        lines.append(f"## {model.__name__}\n\n{schema['description']}\n")
        for part in ("spec", "status"):
            lines.extend(_section(part, schema["properties"][part], known))
        lines.extend(_rules(schema))
    return "\n".join(lines)


def _section(path: str, schema: Schema, known: dict[str, str]) -> Iterator[str]:
    """Heading, table and rules of a section, and then of the sections in it.

    Args:
        path: as a user writes it, e.g. ``spec.samplers[].template``.
        schema: of the section.
        known: path by fields, of the sections before: equal ones are not listed again.
    """
    fields = schema["properties"]
    first = known.setdefault(repr((fields, schema.get(RULES))), path)
    yield f"### {path}\n"
    if schema.get("description"):
        yield f"{schema['description']}\n"
    if first != path:
        yield f"The same fields as `{first}`.\n"
        return
    yield "| field | type | default | range | description |\n|---|---|---|---|---|"
    required = schema.get("required", ())
    for name, field in fields.items():
        yield _row(name, field, required=name in required and path.startswith("spec"))
    yield ""
    yield from _rules(schema)
    for name, field in fields.items():
        if is_section(field):
            yield from _section(f"{path}.{name}", field, known)
        elif is_section(field.get("items", {})):
            yield from _section(f"{path}.{name}[]", field["items"], known)


def _row(name: str, field: Schema, *, required: bool) -> str:
    default = f"`{shown(field['default'])}`" if has_plain_default(field) else ""
    cells = (
        f"`{name}`",
        _type(field),
        "required" if required else default,
        _range(field),
        field.get("description", ""),
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _type(field: Schema) -> str:
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}"
    if "additionalProperties" in field:
        return f"map to {_type(field['additionalProperties'])}"
    if field.get("format") == "date-time":
        return "time"
    return TEXTS.get(field.get("type", ""), "object")


def _range(field: Schema) -> str:
    """Bounds of a number, a text or a list."""
    if bounds := range_of(field):
        return bounds
    unit = {"string": "characters", "array": "items"}.get(field.get("type", ""), "entries")
    least = next((field[key] for key in ("minLength", "minItems") if key in field), None)
    most = next(
        (field[key] for key in ("maxLength", "maxItems", "maxProperties") if key in field), None
    )
    if most is None:
        return ""
    return f"{least or 0:,} to {most:,} {unit}"


def _rules(schema: Schema) -> Iterator[str]:
    rules = schema.get(RULES, ())
    if not rules:
        return
    yield "Rules:\n"
    for rule in rules:
        yield f"- {_message(rule)}"
    yield ""


def _message(rule: dict[str, str]) -> str:
    """The message of a rule, with ``<name>`` for each value that is computed."""
    if "message" in rule:
        return rule["message"]
    computed = COMPUTED.fullmatch(rule["messageExpression"])
    assert computed is not None, rule
    text, values = computed.groups()
    for value in values.split(", "):
        text = text.replace("%s", f"`<{_shown(value)}>`", 1)
    return text.replace("\\'", "'")


def _shown(value: str) -> str:
    """A computed value by the last part of its field's path."""
    if " ? " in value:
        return "section"
    if sized := SIZED.fullmatch(value):
        return f"number of {sized[1]}"
    path, *rest = CALLED.sub("", value.replace("?", "")).split(" ", 1)
    return " ".join([path.rpartition(".")[2], *rest])
