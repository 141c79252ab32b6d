"""A place in a pod template leads back to the field of the spec that it comes from."""

from __future__ import annotations

from typing import Any

import pytest

from rl_operator.trial import field_of

TEMPLATE: dict[str, Any] = {
    "spec": {
        "initContainers": [{"name": "stage"}, {"name": "engine"}],
        "containers": [{"name": "agent"}, {"name": "theirs"}],
    }
}
PLACES = {
    "spec.tolerations[1].operator": "t.tolerations[1].operator",
    "spec.nodeSelector": "t.nodeSelector",
    "spec.topologySpreadConstraints[0].maxSkew": "t.topologySpread[0].maxSkew",
    "spec.initContainers[1].resources.limits[cpu]": "t.resources.limits[cpu]",
    "spec.initContainers[1].resources.claims[0].name": (
        "t.podTemplate.spec.initContainers[1].resources.claims[0].name"
    ),
    "spec.initContainers[1].image": "t.engine.image",
    "spec.containers[0].image": "t.image",
    "spec.containers[0].resources.requests": "t.podTemplate.spec.containers[0].resources.requests",
    "spec.containers[1].image": "t.podTemplate.spec.containers[1].image",
    "spec.affinity.podAffinity": "t.podTemplate.spec.affinity.podAffinity",
    "labels": "t.podTemplate.metadata.labels",
    "annotations": "t.podTemplate.metadata.annotations",
    "": "t.podTemplate",
}


@pytest.mark.parametrize(("path", "field"), PLACES.items())
def test_the_field_is_named(path: str, field: str) -> None:
    assert field_of("t", path, TEMPLATE) == field
