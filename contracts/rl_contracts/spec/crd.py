"""CRDs from the spec models: ``python -m rl_contracts.spec.crd FOLDER`` writes them.

A structural schema allows less than JSON schema: no references, no ``additionalProperties: false``
beside ``properties`` and no null type. Defaults of nested sections are written as ``{}``, and the
API server fills in the defaults of their fields; a section with rules has them in full.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from rl_contracts.spec.base import RULES
from rl_contracts.spec.resources import GROUP, VERSION, RLJob, SamplerPool

Schema = dict[str, Any]
# An uninstalled chart must not take every run of the cluster with it.
KEEP = {"helm.sh/resource-policy": "keep"}
LINE = 8000
DROPPED = ("title", "additionalProperties", "$defs", "discriminator")


def structural(model: type[BaseModel]) -> Schema:
    """The structural OpenAPI schema of a model."""
    schema = model.model_json_schema(by_alias=True)
    resolved = _resolve(schema, schema.get("$defs", {}))
    assert isinstance(resolved, dict)
    _describe_once(resolved, "", {})
    return resolved


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
            node["description"] = f"As {first}: {node['description']}"
            fields = node["properties"] = _undescribed(fields)
    for name, field in fields.items():
        place = f"{path}.{name}".lstrip(".")
        first = known.setdefault(name + json.dumps(field), place)
        shorter = f"As {first}."
        if first != place and len(shorter) < len(field.get("description", "")):
            node["properties"][name] = {**_undescribed(field), "description": shorter}
        else:
            _describe_once(field, place, known)
    if "items" in node:
        _describe_once(node["items"], path, known)


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
        target = definitions[node["$ref"].rsplit("/", 1)[1]]
        node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
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


def _without_defaults(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_defaults(one) for one in node]
    if not isinstance(node, dict):
        return node
    return {key: _without_defaults(value) for key, value in node.items() if key != "default"}


def _properties(fields: Schema, definitions: Schema, *, required: Collection[str]) -> Schema:
    resolved = {}
    for name, field in fields.items():
        schema = _resolve(field, definitions)
        if schema.get("type") == "array" and name not in required:
            schema.setdefault("default", [])  # a rule may ask for its size
        section = schema.get("type") == "object" and "properties" in schema
        if section and name not in required and _all_optional(schema):
            # Rules are tried on a default as it stands, without the defaults of its fields.
            schema.setdefault("default", _filled(schema) if RULES in schema else {})
        if schema.get("default", ...) is None:
            del schema["default"]
        if schema.get("default") == {} and "additionalProperties" in schema:
            del schema["default"]
        resolved[name] = schema
    return resolved


def _filled(schema: Schema) -> Schema:
    """The value of a section whose user wrote nothing."""
    return {
        name: _filled(field) if field.get("type") == "object" and "properties" in field else written
        for name, field in schema["properties"].items()
        if (written := field.get("default")) is not None
    }


def _all_optional(schema: Schema) -> bool:
    return not schema.get("required")


def _without_null(node: Schema, definitions: Schema) -> Schema:
    options = node.get("anyOf")
    if not options or node.get("x-kubernetes-int-or-string"):
        return node
    wanted = [one for one in options if one.get("type") != "null"]
    assert len(wanted) == 1, f"a union has no structural schema: {node}"
    resolved = _resolve(wanted[0], definitions)
    return {**resolved, **{key: value for key, value in node.items() if key != "anyOf"}}


def _column(name: str, kind: str, path: str, priority: int = 0) -> Schema:
    column: Schema = {"name": name, "type": kind, "jsonPath": path}
    return {**column, "priority": priority} if priority else column


RLJOB_COLUMNS = [
    _column("Phase", "string", ".status.phase"),
    _column("Trainer", "string", ".status.trainer.summary"),
    _column("Samplers", "string", ".status.samplers.summary"),
    _column("Step", "integer", ".status.progress.step"),
    _column("Reward", "number", ".status.progress.reward"),
    _column("Policy", "integer", ".status.weights.version"),
    _column("Age", "date", ".metadata.creationTimestamp"),
    _column("Steps", "integer", ".status.progress.steps", 1),
    _column("Lag", "integer", ".status.weights.lag", 1),
    _column("Restarts", "integer", ".status.trainer.restarts", 1),
    _column("Attempt", "integer", ".status.attempt", 1),
    _column("Reason", "string", ".status.conditions[?(@.type=='Ready')].reason", 1),
    _column("Doing", "string", ".status.progress.phase", 1),
]
POOL_COLUMNS = [
    _column("Job", "string", ".spec.job"),
    _column("Desired", "integer", ".spec.replicas"),
    _column("Ready", "integer", ".status.ready"),
    _column("Serving", "integer", ".status.serving"),
    _column("Policy", "integer", ".status.version"),
    _column("Lag", "integer", ".status.lag"),
    _column("Age", "date", ".metadata.creationTimestamp"),
]


def _crd(*, kind: str, plural: str, short: str, schema: Schema, version: Schema) -> Schema:
    status = _without_defaults(schema["properties"]["status"])
    # GitOps tools take an object without observedGeneration for finished: it starts at -1.
    schema["properties"] = {
        "metadata": {"type": "object"},
        "spec": schema["properties"]["spec"],
        "status": {**status, "default": {"observedGeneration": -1}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}", "annotations": KEEP},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                "categories": ["all", "rl"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    **version,
                }
            ],
        },
    }


def rljob() -> Schema:
    """The RLJob CRD."""
    return _crd(
        kind="RLJob",
        plural="rljobs",
        short="rlj",
        schema=structural(RLJob),
        version={"subresources": {"status": {}}, "additionalPrinterColumns": RLJOB_COLUMNS},
    )


def samplerpool() -> Schema:
    """The SamplerPool CRD, with ``/scale``."""
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    return _crd(
        kind="SamplerPool",
        plural="samplerpools",
        short="spool",
        schema=structural(SamplerPool),
        version={
            "subresources": {"status": {}, "scale": scale},
            "additionalPrinterColumns": POOL_COLUMNS,
        },
    )


def files() -> dict[str, str]:
    """File name to text. JSON is YAML: it needs no writer of ours and keeps the order of fields."""
    header = "# Generated from contracts/rl_contracts/spec by `make generate`; do not edit.\n"
    return {
        f"{crd['metadata']['name']}.yaml": header + _text(crd) + "\n"
        for crd in (rljob(), samplerpool())
    }


def _text(node: Any, margin: str = "") -> str:
    """JSON with what is short on one line: half the size of an indented file."""
    line = json.dumps(node, separators=(",", ":"), ensure_ascii=False)
    if len(margin) + len(line) <= LINE or not isinstance(node, dict | list):
        return line
    deeper = margin + " "
    if isinstance(node, dict):
        parts = [f"{json.dumps(key)}:{_text(one, deeper)}" for key, one in node.items()]
        opening, closing = "{", "}"
    else:
        parts = [_text(one, deeper) for one in node]
        opening, closing = "[", "]"
    inner = ",".join(f"\n{deeper}{one}" for one in parts)
    return f"{opening}{inner}\n{margin}{closing}"


def main() -> None:
    """Write the CRDs into a folder, or with ``--check`` compare them with what is there."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    for folder in arguments.folders:
        for name, text in files().items():
            path = folder / name
            if not arguments.check:
                path.write_text(text)
            elif not path.exists() or path.read_text() != text:
                raise SystemExit(f"{path} is not what the models say: run `make generate`")


if __name__ == "__main__":
    main()
