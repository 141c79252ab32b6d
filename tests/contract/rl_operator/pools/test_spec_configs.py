"""ConfigMaps that sampler pods read: whatever a pool renders, those that it names exist."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rl_operator.kube import kinds, names
from rl_operator.kube.kinds import Key
from tests.contract.rl_operator.pools.test_pools import running
from tests.contract.rl_operator.pools.test_shared_pools import (
    GROUPS,
    LIMIT,
    POOL,
    agents,
    lora_job,
    make_inputs,
    make_pool,
    settle,
)
from tests.contract.rl_operator.world import World


def patch(world: World, kind: str, name: str, spec: dict[str, Any]) -> None:
    body = json.dumps({"spec": spec})
    world.apiserver.kubectl("-n", world.namespace, "patch", kind, name, "--type=merge", "-p", body)


def read_by_pods(world: World) -> set[str]:
    """Names of the ConfigMaps that the pods of the only Deployment read; all of them exist."""
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    annotations = deployment["spec"]["template"]["metadata"]["annotations"]
    read = set(annotations[names.SPECS_ANNOTATION].split(","))
    assert read <= {each["metadata"]["name"] for each in world.objects(kinds.CONFIG_MAP)}
    return read


def message(world: World, job: Key) -> str:
    return str(world.condition(job, "Stalled")["message"])


def test_those_of_an_edit_that_the_api_server_refuses_exist(world: World) -> None:
    job = running(world)
    before = read_by_pods(world)
    scaled = {"autoscaling": {"minReplicas": 2}, "maxConcurrentGroups": 3}
    volume = {"name": "v", "emptyDir": {}, "configMap": {"name": "two sources"}}
    template = scaled | {"podTemplate": {"spec": {"volumes": [volume]}}}
    world.make_job(samplers=[{"name": "main", "template": template}])
    world.settle(job)
    assert message(world, job).startswith("spec.samplers[0].template.podTemplate.spec.volumes")
    assert read_by_pods(world).isdisjoint(before)


def test_those_of_a_shared_pool_s_new_template_exist_at_once(world: World) -> None:
    make_inputs(world)
    make_pool(world)
    world.start_operator(trust_seconds=300.0)
    job = world.make_job("first", samplers=GROUPS, lifecycle=LIMIT)
    settle(world, job)
    before = read_by_pods(world)
    patch(world, "samplerpool", POOL, {"template": {"maxConcurrentGroups": 3}})
    settle(world, job)
    assert read_by_pods(world).isdisjoint(before)


@pytest.mark.soak
def test_a_refused_edit_of_one_run_leaves_the_samplers_of_another_theirs(world: World) -> None:
    make_inputs(world)
    make_pool(world, maxRuns=2)
    first = lora_job(world, "first", rank=4)
    settle(world, first)
    second = lora_job(world, "second", rank=8)
    for _ in range(8):  # its pods do not come, so that it is not started
        world.reconcile(first)
        world.reconcile(second)
    assert agents(world) == ["agent-first", "agent-second"]
    edit = {"agent": {"sampling": {"temperature": 0.7}}, "trainer": {"env": [{"name": "RL_RUN"}]}}
    patch(world, "rljob", "second", edit)
    for _ in range(5):
        world.reconcile(first)
        world.reconcile(second)
    assert message(world, second).startswith("spec.trainer.env[0].name")
    assert len(read_by_pods(world)) == 2
