"""What all spec models share: camelCase outside, frozen, nothing unknown, rules for the API server.

Defaults stand in the models alone; the CRDs are generated from them. Cross-field rules are written
once, in CEL, and enforced by the API server; ``Model`` checks what a schema can say.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_serializer
from pydantic.alias_generators import to_camel

RULES = "x-kubernetes-validations"


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


def rule(expression: str, message: str) -> dict[str, str]:
    """A CEL rule for the API server: ``expression`` over ``self`` must hold, else ``message``."""
    return {"rule": expression, "message": message}


def rules(*wanted: dict[str, str]) -> ConfigDict:
    """Model configuration that attaches CEL rules to a section."""
    return ConfigDict(json_schema_extra={RULES: [dict(one) for one in wanted]})


TEXT = WithJsonSchema({"type": "string"})
"""As NUMBER: of names that Kubernetes itself looks at, too."""
NUMBER = WithJsonSchema({"type": "number"})
"""Its bounds are checked by the operator alone: a CRD has room for 60 KB."""

Quantity = Annotated[
    int | str,
    WithJsonSchema({"x-kubernetes-int-or-string": True}),
]
"""A Kubernetes resource quantity, e.g. ``2``, ``500m`` or ``4Gi``."""

OPAQUE = WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
Opaque = Annotated[dict[str, Any], OPAQUE]
"""A part of a core/v1 object, passed on as it is; the API server checks it there."""
IntOrPercent = Annotated[
    int | str,
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "pattern": "^[0-9]{1,4}$|^([0-9]|[1-9][0-9]|100)%$",
        }
    ),
]
"""A number of pods, ≥ 0, or a share of them, e.g. ``25%``."""
Quantities = Annotated[dict[str, Quantity], Field(max_length=16)]
Name = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=40)]
FOLDER = r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/.+"
S3Uri = Annotated[str, Field(pattern=rf"^{FOLDER}$", max_length=1024)]


class Resources(Model):
    """Container resources, as in core/v1."""

    limits: Quantities = Field(default_factory=dict)
    requests: Quantities = Field(default_factory=dict)

    def to_kubernetes(self) -> dict[str, Any]:
        """The core/v1 form, empty maps left out."""
        return {key: value for key, value in self.model_dump(by_alias=True).items() if value}


class EnvironmentVariable(Model):
    """An environment variable; a secret's value is never written here, but where it stands."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
    value: Annotated[str, Field(max_length=4096)] = ""
    value_from: Opaque | None = None
    """E.g. ``secretKeyRef``."""

    @model_serializer
    def to_kubernetes(self) -> dict[str, Any]:
        """The core/v1 form."""
        if self.value_from is None:
            return {"name": self.name, "value": self.value}
        # Both are for the API server to refuse.
        plain = {"value": self.value} if self.value else {}
        return {"name": self.name, **plain, "valueFrom": dict(self.value_from)}
