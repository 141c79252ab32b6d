"""Evaluates the rules of our CRDs, which are written in CEL, without an API server.

The library knows no optional fields (``self.?field.orValue(1)``), so they are rewritten to
``has(self.field) ? self.field : 1``, which is what they mean. It lacks ``format`` and ``split``.
Rules about changes, which read ``oldSelf``, are the API server's alone.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import celpy
from celpy import celtypes

RULES = "x-kubernetes-validations"
Schema = Mapping[str, Any]
OPTIONAL = re.compile(r"(\w+(?:\.\w+)*)\.\?(\w+(?:\.\w+)*)\.orValue\(")
MOST_INTEGER = 2**63
PLACEHOLDER = re.compile(r"%[s%]")


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a manifest breaks."""

    field: str
    message: str


def violations(schema: Schema, value: Any, at: str = "") -> Iterator[Violation]:
    """The rules that a value breaks, here and below.

    Args:
        schema: structural schema of the value.
        value: with its defaults filled in, and of the types that the schema has.
        at: path of the value, empty for the whole object.
    """
    yield from _walked(schema, value, converted(schema, value), at)


def _walked(schema: Schema, value: Any, known: Any, at: str) -> Iterator[Violation]:
    """As ``violations``; ``known`` is the value as CEL has it, converted once for all rules."""
    for rule in schema.get(RULES, ()):
        if "oldSelf" not in rule["rule"]:
            yield from _broken(rule, known, at)
    if isinstance(value, dict):
        for name, inner in value.items():
            below = schema.get("properties", {}).get(name) or schema.get("additionalProperties")
            if isinstance(below, Mapping):
                part = known[celtypes.StringType(name)]
                yield from _walked(below, inner, part, f"{at}.{name}" if at else name)
    elif isinstance(value, list) and "items" in schema:
        for index, inner in enumerate(value):
            yield from _walked(schema["items"], inner, known[index], f"{at}[{index}]")


def _broken(rule: Mapping[str, str], known: Any, at: str) -> Iterator[Violation]:
    field = f"{at}{rule.get('fieldPath', '')}".lstrip(".")
    names = {"self": known}
    try:
        if _program(rule["rule"]).evaluate(names):
            return
        expression = rule.get("messageExpression")
        message = str(_program(expression).evaluate(names)) if expression else rule["message"]
    except celpy.CELEvalError as error:
        message = f"the rule {rule['rule']!r} cannot be evaluated: {error.args[0]}"
    yield Violation(field, message)


@functools.cache
def _program(expression: str) -> Any:
    environment = celpy.Environment()
    tree = environment.compile(without_optionals(expression))
    return environment.program(tree, functions={"format": _format, "split": _split})


def _split(text: celtypes.StringType, separator: celtypes.StringType) -> celtypes.ListType:
    return celtypes.ListType([celtypes.StringType(part) for part in text.split(separator)])


def _format(text: celtypes.StringType, values: celtypes.ListType) -> celtypes.StringType:
    """``'%s is %s'.format([a, b])``; ``%%`` is a percent sign."""
    left = iter(values)
    return celtypes.StringType(
        PLACEHOLDER.sub(lambda match: "%" if match[0] == "%%" else _shown(next(left)), text)
    )


def _shown(value: Any) -> str:
    return f"{float(value):g}" if isinstance(value, celtypes.DoubleType) else str(value)


def without_optionals(expression: str) -> str:
    """The expression with ``a.?b.orValue(c)`` as ``(has(a.b) ? a.b : (c))``."""
    while match := OPTIONAL.search(expression):
        end = _closing(expression, match.end())
        default = expression[match.end() : end]
        base, path = match[1], match[2].split(".")
        steps = [".".join([base, *path[:count]]) for count in range(1, len(path) + 1)]
        present = " && ".join(f"has({step})" for step in steps)
        chosen = f"({present} ? {steps[-1]} : ({default}))"
        expression = expression[: match.start()] + chosen + expression[end + 1 :]
    return expression


def _closing(expression: str, start: int) -> int:
    """Index of the bracket that closes the one before ``start``."""
    depth = 1
    for index in range(start, len(expression)):
        depth += {"(": 1, ")": -1}.get(expression[index], 0)
        if not depth:
            return index
    raise ValueError(f"a bracket is open in {expression!r}")


def converted(schema: Schema, value: Any) -> Any:
    """A value as CEL has it: of the type that its field has, also where a number is written 1.

    An integer that is written 1.0 is an integer, too.
    """
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        return celtypes.MapType(
            {
                celtypes.StringType(name): converted(properties.get(name) or others or {}, inner)
                for name, inner in value.items()
            }
        )
    if isinstance(value, list):
        items = schema.get("items", {})
        return celtypes.ListType([converted(items, inner) for inner in value])
    if schema.get("type") == "number" and not isinstance(value, bool):
        return celtypes.DoubleType(value)
    if schema.get("type") == "integer" and isinstance(value, float):
        return celtypes.IntType(int(value))
    if isinstance(value, int) and abs(value) >= MOST_INTEGER:
        return celtypes.DoubleType(value)
    return celpy.json_to_cel(value)
