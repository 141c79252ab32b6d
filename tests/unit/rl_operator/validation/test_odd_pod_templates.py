"""Whatever a ``podTemplate`` holds: it is refused by field, or it can be rendered."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rl_contracts.spec.resources import RLJobSpec
from rl_operator.kube import names
from rl_operator.render import trainer, workload
from rl_operator.render.samplers import deployment
from rl_operator.validation.refusals import of_spec
from tests.unit.rl_operator.builders import IMAGES, a_meta, a_spec

CONTAINER: dict[str, Any] = {
    "name": "pytorch",
    "env": [{"name": "A", "value": "x"}],
    "volumeMounts": [{"name": "v", "mountPath": "/x"}],
    "ports": [{"containerPort": 1}],
    "resources": {"claims": [{"name": "g"}]},
    "securityContext": {"capabilities": {"add": ["NET_BIND_SERVICE"]}, "seccompProfile": {}},
    "lifecycle": {"preStop": {"httpGet": {"port": 1}}},
}
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
    "spec": {
        "securityContext": {"runAsUser": 5, "seLinuxOptions": {"type": "container_t"}},
        "resourceClaims": [{"name": "g"}],
        "volumes": [{"name": "v", "projected": {"sources": [{"configMap": {"name": "x"}}]}}],
        "containers": [CONTAINER, {"name": "mine", "image": "x:1", "resources": {"limits": {}}}],
        "initContainers": [{"name": "i", "image": "x:1"}],
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "x"}],
    },
}
Path = tuple[str | int, ...]


def paths(value: Any, before: Path = ()) -> Iterator[Path]:
    """Of all parts of a JSON value but itself."""
    keys = value if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield (*before, key)
        if isinstance(value[key], dict | list):
            yield from paths(value[key], (*before, key))


def with_value(path: Path, value: Any) -> dict[str, Any]:
    template = copy.deepcopy(TEMPLATE)
    part: Any = template
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return template


def render(spec: RLJobSpec) -> None:
    job = a_meta("job")
    trainer.render(job, spec, attempt=1, images=IMAGES)
    deployment.pod_template(job, spec, spec.samplers[0], images=IMAGES)
    reserved = workload.render(job, spec, images=IMAGES)
    workload.missing_demand(reserved, reserved)


def spec_with(template: Any, where: str) -> RLJobSpec:
    if where == "trainer":
        return a_spec(trainer={"podTemplate": template})
    return a_spec(samplers=[{"name": "main", "template": {"podTemplate": template}}])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from(["", "x", "name"]),
    lambda each: (
        st.lists(each, max_size=2)
        | st.dictionaries(st.sampled_from(["", "name", "x", "securityContext"]), each, max_size=2)
    ),
    max_leaves=4,
)
CAPABILITIES = ("spec", "containers", 0, "securityContext", "capabilities", "add")


@settings(max_examples=150, deadline=None)
@given(path=st.sampled_from(list(paths(TEMPLATE))), value=JSON)
@example(path=("spec",), value=None)
@example(path=("spec", "containers", 0, "volumeMounts"), value=1)
@example(path=("spec", "containers", 1, "name"), value="")
@example(path=CAPABILITIES, value=[[]])
def test_any_value_is_refused_or_rendered(path: Path, value: Any) -> None:
    for where in ("trainer", "sampler"):
        spec = spec_with(with_value(path, value), where)
        if not list(of_spec(spec)):
            render(spec)


EMPTY: list[dict[str, Any]] = [
    {"spec": None, "metadata": None},
    {"spec": {"containers": None, "initContainers": None, "volumes": None}},
    {"metadata": {"labels": None, "annotations": None}},
    {"spec": {"containers": [{"name": "pytorch", "env": None, "volumeMounts": None}]}},
]


@pytest.mark.parametrize("template", EMPTY)
def test_keys_without_a_value_change_nothing(template: dict[str, Any]) -> None:
    plain, spec = a_spec(), spec_with(template, "trainer")
    assert list(of_spec(spec)) == []
    rendered, usual = (
        json.dumps(trainer.render(a_meta("job"), each, attempt=1, images=IMAGES)["spec"]).replace(
            names.trainer_config("job", each), "the job's spec"
        )
        for each in (spec, plain)
    )
    assert rendered == usual
