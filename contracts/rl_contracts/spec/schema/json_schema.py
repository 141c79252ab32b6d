"""JSON Schemas of the kinds, for editors and for tools such as kubeconform.

They know structure, types and bounds. The rules between fields (CEL) are evaluated by the API
server alone.
"""

from __future__ import annotations

import json
from typing import Any

Schema = dict[str, Any]
DRAFT = "http://json-schema.org/draft-07/schema#"
FOREIGN = "x-kubernetes-"
NUMBER_OR_TEXT = "x-kubernetes-int-or-string"
OF_TEXT = ("pattern",)
EXCLUSIVE = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
OF_NUMBER = ("minimum", "maximum")


def files(crds: list[Schema]) -> dict[str, str]:
    """File name (``KIND_VERSION.json``, lower case) to text, of each CRD's versions."""
    made = {}
    for crd in crds:
        group, kind = crd["spec"]["group"], crd["spec"]["names"]["kind"]
        for version in crd["spec"]["versions"]:
            schema = of_kind(version["schema"]["openAPIV3Schema"])
            schema["properties"]["apiVersion"] = {"const": f"{group}/{version['name']}"}
            schema["properties"]["kind"] = {"const": kind}
            schema["properties"]["metadata"] = {"type": "object"}
            schema["required"] = sorted({*schema.get("required", ()), "apiVersion", "kind"})
            name = f"{kind.lower()}_{version['name']}.json"
            made[name] = json.dumps({"$schema": DRAFT, **schema}, indent=1) + "\n"
    return made


def of_kind(schema: Schema) -> Schema:
    """A structural schema as JSON Schema: unknown fields are refused where it lists the fields."""
    plain = {key: value for key, value in schema.items() if not key.startswith(FOREIGN)}
    if schema.get(NUMBER_OR_TEXT):
        text, number = (
            {k: plain.pop(k) for k in keys if k in plain} for keys in (OF_TEXT, OF_NUMBER)
        )
        plain["anyOf"] = [{"type": "integer", **number}, {"type": "string", **text}]
    for exclusive, bound in EXCLUSIVE.items():
        if plain.pop(exclusive, False):  # OpenAPI 3.0 says by a flag what JSON Schema says by value
            plain[exclusive] = plain.pop(bound)
    if "properties" in plain:
        plain["properties"] = {name: of_kind(each) for name, each in plain["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            plain["additionalProperties"] = False
    elif isinstance(plain.get("additionalProperties"), dict):
        plain["additionalProperties"] = of_kind(plain["additionalProperties"])
    if "items" in plain:
        plain["items"] = of_kind(plain["items"])
    return plain
