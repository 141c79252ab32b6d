"""What all spec models share: camelCase outside, frozen, nothing unknown, rules for the API server.

Defaults stand in the models alone; the CRDs and the reference page are generated from them.
A field's description is the docstring below it, or the class docstring of its section. Cross-field
rules are written once, in CEL, and enforced by the API server; ``Model`` checks what a JSON schema
can say.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_serializer
from pydantic.alias_generators import to_camel

RULES = "x-kubernetes-validations"
QUOTE, ESCAPED = "'", r"\'"
PLACEHOLDER = re.compile(r"(?<!\$)\{([^{}]+)\}")


class Model(BaseModel):
    """A section of a manifest."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )


def rule(expression: str, message: str, *, field: str = "") -> dict[str, str]:
    """A CEL rule for the API server: ``expression`` over ``self`` must hold, else ``message``.

    Args:
        expression: CEL. Below a list nothing is filled in: read a field with a default there as
            ``self.?field.orValue(default)``.
        message: names the field, its value and the remedy. CEL in braces is evaluated, e.g.
            ``minTurns is {self.minTurns}``, unless a dollar sign precedes them.
        field: the field that the error is shown at, below the section, e.g. ``sampling.maxTokens``;
            empty: the section itself.
    """
    written = {"rule": expression}
    if values := PLACEHOLDER.findall(message):
        # Not by +: the API server takes the length of a text made from a number for unbounded.
        text = PLACEHOLDER.sub("%s", message.replace("%", "%%")).replace(QUOTE, ESCAPED)
        written["messageExpression"] = f"'{text}'.format([{', '.join(values)}])"
    else:
        written["message"] = message
    return written | ({"fieldPath": f".{field}"} if field else {})


def rules(*wanted: dict[str, str]) -> ConfigDict:
    """Model configuration that attaches CEL rules to a section."""
    return ConfigDict(json_schema_extra={RULES: [dict(each) for each in wanted]})


def listed(values: Collection[str]) -> str:
    """A CEL list of strings."""
    quoted = [f"'{value}'" for value in values]
    return f"[{', '.join(quoted)}]"


def either(names: Sequence[str]) -> str:
    """Names in a sentence: ``A, B or C``."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def only_of(field: str, kinds: str | tuple[str, ...], section: str) -> dict[str, str]:
    """The rule that a field may be set under some values of ``kind`` alone."""
    names = (kinds,) if isinstance(kinds, str) else kinds
    return rule(
        f"!has(self.{field}) || self.kind in {listed(names)}",
        f"{section}.{field} is for kind {either(names)}, and kind is {{self.kind}}: "
        f"remove {field} or change kind",
        field=field,
    )


QUANTITY = r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"
INT_OR_STRING = {"x-kubernetes-int-or-string": True, "minimum": 0}
Quantity = Annotated[
    Annotated[int, Field(ge=0)] | Annotated[str, Field(pattern=QUANTITY, max_length=64)],
    WithJsonSchema({**INT_OR_STRING, "pattern": QUANTITY, "maxLength": 64}),
]
"""A Kubernetes resource quantity, e.g. ``2``, ``500m`` or ``4Gi``."""

OPAQUE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
Opaque = Annotated[dict[str, Any], WithJsonSchema(OPAQUE)]
"""A part of a core/v1 object, passed on as it is; the API server checks it there."""
PERCENT = "^([0-9]|[1-9][0-9]|100)%$"
MOST_PODS = 10_000
IntOrPercent = Annotated[
    Annotated[int, Field(ge=0, le=MOST_PODS)] | Annotated[str, Field(pattern=PERCENT)],
    WithJsonSchema({**INT_OR_STRING, "maximum": MOST_PODS, "pattern": PERCENT}),
]
"""A number of pods, 0 to ``MOST_PODS``, or a share of them in quotes, e.g. ``"25%"``."""
Quantities = Annotated[dict[str, Quantity], Field(max_length=16)]
ObjectName = Annotated[
    str,
    Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253),
]
"""Name of a Kubernetes object: a DNS subdomain."""
SecretKey = Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253)]
Name = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=40)]
RUN_ID = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
"""Of a run: the UID of its first job, unless that named another."""
FOLDER = r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/.+"
S3Uri = Annotated[str, Field(pattern=rf"^{FOLDER}$", max_length=1024)]


class Resources(Model):
    """Container resources, as in core/v1: what the container gets and what it may use at most."""

    limits: Quantities = Field(default_factory=dict)
    """Most of each resource that the container may use, e.g. `nvidia.com/gpu: 1`, `memory: 16Gi`.
    Unset: no limit, unless a LimitRange of the namespace sets one."""
    requests: Quantities = Field(default_factory=dict)
    """Amount of each resource that the scheduler reserves for the container, e.g. `cpu: 500m`.
    Unset: the limit, as in core/v1."""

    def to_kubernetes(self) -> dict[str, Any]:
        """The core/v1 form, empty maps left out."""
        return {key: value for key, value in self.model_dump(by_alias=True).items() if value}


class EnvironmentVariable(Model):
    """An environment variable; a secret's value is never written here, but where it stands."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
    """Name of the variable: letters, digits and `_`, not beginning with a digit. Names that the
    operator sets itself are refused."""
    value: Annotated[str, Field(max_length=4096)] = ""
    """Text of the variable. For secrets use valueFrom instead."""
    value_from: Opaque | None = None
    """Source of the value as in core/v1, e.g. `secretKeyRef: {name: keys, key: token}`. Unset:
    value is used."""

    @model_serializer
    def to_kubernetes(self) -> dict[str, Any]:
        """The core/v1 form."""
        if self.value_from is None:
            return {"name": self.name, "value": self.value}
        # Both are for the API server to refuse.
        plain = {"value": self.value} if self.value else {}
        return {"name": self.name, **plain, "valueFrom": dict(self.value_from)}


Image = Annotated[str, Field(pattern=r"^\S+$", max_length=512)]
Environment = Annotated[list[EnvironmentVariable], Field(max_length=32)]
"""As in core/v1."""
EnvironmentSources = Annotated[list[Opaque], Field(max_length=16)]
