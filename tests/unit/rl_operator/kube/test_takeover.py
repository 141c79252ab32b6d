"""What was created becomes what is applied, but for what others write from then on."""

from __future__ import annotations

from typing import Any

import pytest

from rl_operator.kube.takeover import Entry, handed_over


def entry(manager: str, operation: str, fields: dict[str, Any], subresource: str = "") -> Entry:
    found: Entry = {
        "manager": manager,
        "operation": operation,
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsV1": fields,
    }
    return found | ({"subresource": subresource} if subresource else {})


LABELS: Entry = {"f:labels": {"f:a": {}}}
STATUS = entry("us", "Update", {"f:status": {}}, "status")
OTHERS = entry("kubectl", "Update", {"f:spec": {"f:replicas": {}}}, "scale")
CREATED = entry("us", "Update", {"f:metadata": LABELS, "f:spec": {"f:replicas": {}, "f:job": {}}})
SCALED = entry("us", "Update", {"f:metadata": LABELS, "f:spec": {"f:job": {}}})
APPLIED = SCALED | {"operation": "Apply"}
PINNED = entry("us", "Apply", {"f:metadata": {"f:labels": {"f:b": {}}}})
UNITED = APPLIED | {
    "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}, "f:b": {}}}, "f:spec": {"f:job": {}}}
}
HEIR = entry("heir", "Update", {"f:spec": {"f:replicas": {}}})
TABLE: dict[str, tuple[list[Entry], list[Entry] | None]] = {
    "just created": ([CREATED], [APPLIED, HEIR]),
    "and told of": ([CREATED, STATUS], [STATUS, APPLIED, HEIR]),
    "scaled by others": ([SCALED, OTHERS], [OTHERS, APPLIED]),
    "without a spec": (
        [entry("us", "Update", {"f:data": {}})],
        [entry("us", "Apply", {"f:data": {}})],
    ),
    "applied already": ([APPLIED, HEIR], None),
    "applied by a version that hands nothing over": ([CREATED, PINNED], [UNITED, HEIR]),
    "somebody else's": ([OTHERS, STATUS], None),
    "nobody's": ([], None),
}


@pytest.mark.parametrize(("before", "after"), TABLE.values(), ids=TABLE.keys())
def test_fields_are_handed_over(before: list[Entry], after: list[Entry] | None) -> None:
    assert handed_over(before, manager="us", left=["replicas"], heir="heir") == after
