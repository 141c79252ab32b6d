"""Whether a Workload covers what a job wants, and what its pod sets hold."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from rl_operator.render import workload
from rl_operator.render.workload import missing_demand
from tests.unit.rl_operator.builders import IMAGES, a_meta, a_spec
from tests.unit.rl_operator.kueue.workloads import QUEUED, Raw, pod_sets


def beside(*resources: str, **groups: Any) -> Raw:
    """A trainer with a sidecar of these resources."""
    sidecar = {"name": "sidecar", "image": "x", "resources": (*resources, groups)[0]}
    return {"podTemplate": {"spec": {"containers": [sidecar]}}}


LARGER = {"resources": {"requests": {"cpu": "3"}}}


def of_pods(resources: Raw) -> Raw:
    """Samplers whose pods ask for resources as a whole."""
    template = {"podTemplate": {"spec": {"resources": resources}}}
    return {"samplers": [{"name": "main", "template": template}]}


CHANGES: dict[str, tuple[Raw, Raw, str]] = {
    "nothing": ({}, {}, ""),
    "less is wanted": ({"trainer": LARGER}, {}, ""),
    "the same in other words": (
        {"trainer": {"resources": {"requests": {"cpu": "3000m"}}}},
        {"trainer": LARGER},
        "",
    ),
    "more is wanted": ({}, {"trainer": LARGER}, "Pods of set trainer need other resources"),
    "more by its limits": (
        {},
        {"trainer": {"resources": {"limits": {"nvidia.com/gpu": 1}}}},
        "Pods of set trainer need other resources",
    ),
    "more of a sidecar in small units": (
        {"trainer": beside(requests={"cpu": "5e-1"})},
        {"trainer": beside(requests={"cpu": "500001u"})},
        "Pods of set trainer need other resources",
    ),
    "a sidecar that the API server will refuse": (
        {"trainer": beside()},
        {"trainer": beside(limits={"cpu": "much", "memory": None})},
        "",
    ),
    "resources in a word": ({"trainer": beside()}, {"trainer": beside("much")}, ""),
    "limits in a word": ({"trainer": beside()}, {"trainer": beside(limits="much")}, ""),
    "more pods": ({}, {"trainer": {"replicas": 2}}, "Pod set trainer reserves 1 of the 2 pods"),
    "another group": (
        {},
        {"samplers": [{"name": "main"}, {"name": "new"}]},
        "Pod set sampler-new reserves 0 of",
    ),
    "more of whole pods": (
        of_pods({"requests": {"cpu": "1"}}),
        of_pods({"requests": {"cpu": "64"}}),
        "Pods of set sampler-main need other resources",
    ),
    "whole pods that ask for the first time": (
        {},
        of_pods({"limits": {"cpu": "1"}}),
        "Pods of set sampler-main need other resources",
    ),
    "less of whole pods": (of_pods({"requests": {"cpu": "2"}}), of_pods({}), ""),
    "other nodes": (
        {},
        {"trainer": {"nodeSelector": {"a": "b"}}},
        "Pods of set trainer need other resources",
    ),
    "another queue": (
        {},
        {"scheduling": {"provider": "Kueue", "queueName": "other"}},
        "queueName of the",
    ),
}


@pytest.mark.parametrize(("before", "after", "message"), CHANGES.values(), ids=CHANGES)
def test_a_workload_covers_what_a_job_wants(before: Raw, after: Raw, message: str) -> None:
    was = workload.render(a_meta(), a_spec(**{**QUEUED, **before}), images=IMAGES)
    wants = workload.render(a_meta(), a_spec(**{**QUEUED, **after}), images=IMAGES)
    missing = missing_demand(was, wants)
    assert missing.startswith(message)
    assert bool(missing) == bool(message)


OWN_PODS: dict[str, Raw] = {
    "program": {
        "agent": {
            "kind": "Program",
            "program": {"command": ["x"], "image": "p:1", "onFailure": "RewardZero"},
        },
        "reward": {"scorers": [{"kind": "Program"}]},
    },
    "environment": {
        "agent": {"kind": "Environment", "environment": {"image": "e:1", "copies": 3}},
        "reward": {"scorers": [{"kind": "Environment"}]},
    },
}


@pytest.mark.parametrize("kind", OWN_PODS)
def test_containers_of_a_pod_set_differ_in_name_whatever_a_user_adds(kind: str) -> None:
    added = [{"name": name, "image": "x:1"} for name in (kind, f"{kind}-1")]
    template = {"podTemplate": {"spec": {"containers": added}}}
    samplers = {"samplers": [{"name": "main", "template": template}]}
    spec = a_spec(**{**QUEUED, **OWN_PODS[kind], **samplers})
    raw = workload.render(a_meta(), spec, images=IMAGES)
    containers = pod_sets(raw)["sampler-main"]["template"]["spec"]["containers"]
    listed = [container["name"] for container in containers]
    assert {kind, f"{kind}-1", f"rl-operator-{kind}"} <= set(listed)
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize("kind", OWN_PODS)
def test_a_workload_of_an_earlier_version_covers_the_same_job(kind: str) -> None:
    wants = workload.render(a_meta(), a_spec(**{**QUEUED, **OWN_PODS[kind]}), images=IMAGES)
    was = copy.deepcopy(wants)
    for container in pod_sets(was)["sampler-main"]["template"]["spec"]["containers"]:
        container["name"] = container["name"].removeprefix("rl-operator-")
    assert missing_demand(was, wants) == ""
