"""The JSON Schemas of the kinds accept our examples and refuse what the API server refuses."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from rl_contracts.spec.schema import crd, json_schema

ROOT = Path(__file__).resolve().parents[3]
SCHEMAS = {
    name: json.loads(text)
    for name, text in json_schema.files([crd.rljob(), crd.samplerpool()]).items()
}
JOB = Draft7Validator(SCHEMAS["rljob_v1alpha1.json"])
MANIFESTS = [
    manifest
    for path in sorted((ROOT / "examples").rglob("*.yaml"))
    for manifest in yaml.safe_load_all(path.read_text())
    if isinstance(manifest, dict) and manifest.get("kind") == "RLJob" and "metadata" in manifest
]


def test_schemas_are_schemas() -> None:
    assert set(SCHEMAS) == {"rljob_v1alpha1.json", "samplerpool_v1alpha1.json"}
    for schema in SCHEMAS.values():
        Draft7Validator.check_schema(schema)
        assert "x-kubernetes" not in json.dumps(schema)


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda each: each["metadata"]["name"])
def test_examples_are_valid(manifest: dict[str, Any]) -> None:
    assert [error.message for error in JOB.iter_errors(manifest)] == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "trianing"), {}),
        (("spec", "training", "steps"), "many"),
        (("spec", "training", "maxTokensPerMicrobatch"), "Much"),
        (("spec", "training", "maxTokensPerMicrobatch"), 3),
        (("kind",), "RLjob"),
    ],
)
def test_a_mistake_is_found(path: tuple[str, ...], value: object) -> None:
    manifest = copy.deepcopy(MANIFESTS[0])
    section = manifest
    for name in path[:-1]:
        section = section[name]
    section[path[-1]] = value
    assert list(JOB.iter_errors(manifest))
