"""Each of the chart's values has a template that reads it, and a place in its schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parents[3] / "charts" / "rl-operator"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
HELMS_OWN = {"global"}


def paths(values: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        yield prefix + name
        if isinstance(value, dict):
            yield from paths(value, f"{prefix}{name}.")


def declared(schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, subschema in schema.get("properties", {}).items():
        if name not in HELMS_OWN:
            yield prefix + name
            yield from declared(subschema, f"{prefix}{name}.")


def read() -> set[str]:
    """Paths of values in the templates and in the conditions of the chart's parts."""
    templates = "\n".join(path.read_text() for path in (CHART / "templates").iterdir())
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    value_paths = set(re.findall(r"\.Values\.([A-Za-z.]+)", templates))
    # By name: what `index` takes out of a section with the component's name.
    sections = re.findall(r"\(?index \S+(?: 0\))?\.Values\.([A-Za-z.]+) \$name", templates)
    components = re.findall(r'rl\.image" \(list \S+ "(\w+)"', templates)
    components += re.findall(r'"(\w+)" \(dict "port"', templates)
    return (
        value_paths
        | {f"{section}.{component}" for section in sections for component in components}
        | {dependency["condition"] for dependency in chart["dependencies"]}
    )


def test_each_value_is_read() -> None:
    known = read()
    leaves = [path for path in declared(SCHEMA) if not any(declared_below(path))]
    assert [leaf for leaf in leaves if leaf not in known] == []


def declared_below(path: str) -> Iterator[str]:
    return (name for name in declared(SCHEMA) if name.startswith(path + "."))


def test_values_and_schema_have_the_same_names() -> None:
    stated = set(paths(VALUES))
    named = set(declared(SCHEMA))
    assert named - stated == set()
    # What is free-form in the schema, as resources are, is the API server's to check.
    assert {path for path in stated - named if path.rpartition(".")[0] in named} <= {
        f"{free}.{part}"
        for free in (
            *("operator.resources", "dashboard.resources"),
            *("stores.resources.store", "stores.resources.minio"),
        )
        for part in ("requests", "limits")
    } | {"grafana.dashboards.labels.grafana_dashboard"}
