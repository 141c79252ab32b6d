"""Invalid manifests: each is refused by the field, by the API server or by a Stalled condition."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from rl_operator.kube import kinds
from tests.contract.rl_operator.world import World
from tests.contract.rl_operator.worlds import Servers, a_world
from tests.samples.invalid_manifests import Case, cases
from tests.servers import MinioServer, StoreServer, connected_stores, fresh_settings

PLURALS = {"RLJob": "rljobs", "SamplerPool": "samplerpools"}
ROUNDS = 5
MOST_WRITES = 3
"""The ConfigMap, the first status and the one that says why: nothing else is made."""
OF_READER = Counter({"Secret": 1, "NetworkPolicy": 1, "Pod": 1})
"""What is written once for all jobs of a namespace's stores: the key, the policy and the pod."""


@pytest.fixture(scope="module")
def answers(with_trainer_kind: object, api: client.ApiClient) -> dict[str, list[Case]]:
    """The cases by how the API server takes them: refused by name, otherwise, or not at all."""
    by_answer: dict[str, list[Case]] = {"named": [], "unnamed": [], "taken": []}
    for case in cases():
        fields = _refused_fields(api, case)
        if not fields:
            by_answer["taken"].append(case)
        else:
            by_answer["named" if case.field in fields else "unnamed"].append(case)
    return by_answer


def _refused_fields(api: client.ApiClient, case: Case) -> list[str]:
    body = case.manifest
    try:
        client.CustomObjectsApi(api).create_namespaced_custom_object(
            "rl-operator.io", "v1alpha1", "default", PLURALS[body["kind"]], body, dry_run="All"
        )
    except ApiException as error:
        answer = json.loads(error.body)
    else:
        return []
    assert answer["code"] == 422, answer
    causes = answer["details"]["causes"]
    assert all(cause["message"] for cause in causes)
    return [cause["field"] for cause in causes]


def test_every_violation_of_the_schema_names_its_field(answers: dict[str, list[Case]]) -> None:
    assert len(answers["named"]) >= 200
    assert [str(answer) for answer in answers["taken"]] == []
    assert [str(answer) for answer in answers["unnamed"]] == []


def samplers(**template: Any) -> dict[str, Any]:
    return {"samplers": [{"name": "main"}, {"name": "other", "template": template}]}


def pod(**fields: Any) -> dict[str, Any]:
    return {"podTemplate": {"spec": fields}}


OTHER = "spec.samplers[1].template"
STALLED: dict[str, tuple[dict[str, Any], str]] = {
    "more asked for than allowed": (
        samplers(resources={"limits": {"cpu": 1}, "requests": {"cpu": 2}}),
        f"{OTHER}.resources.requests",
    ),
    "a resource of no name": (
        samplers(resources={"limits": {"a b": 1}}),
        f"{OTHER}.resources.limits",
    ),
    "half an accelerator": (
        {"trainer": {"resources": {"limits": {"nvidia.com/gpu": "500m"}}}},
        "spec.trainer.resources.limits",
    ),
    "our variable": ({"trainer": {"env": [{"name": "RL_RUN"}]}}, "spec.trainer.env[0].name"),
    "the launcher's": ({"trainer": {"env": [{"name": "PET_X"}]}}, "spec.trainer.env[0].name"),
    "our argument": (samplers(engine={"args": ["--port=1"]}), f"{OTHER}.engine.args[0]"),
    "the engine's home": (samplers(engine={"env": [{"name": "HOME"}]}), f"{OTHER}.engine.env[0]"),
    "a selector of no label": (
        {"trainer": {"nodeSelector": {"a b": "c"}}},
        "spec.trainer.nodeSelector",
    ),
    "a selector for no value": (samplers(nodeSelector={"a": "b c"}), f"{OTHER}.nodeSelector"),
    "a toleration of no kind": (
        {"trainer": {"tolerations": [{"operator": "Nope"}]}},
        "spec.trainer.tolerations[0].operator",
    ),
    "a toleration of a number": (samplers(tolerations=[{"key": 5}]), f"{OTHER}.tolerations"),
    "a toleration misspelt": (
        samplers(tolerations=[{"operater": "Exists"}]),
        f"{OTHER}.tolerations[0].operater",
    ),
    "a spread over nothing": (
        {"trainer": {"topologySpread": [{"maxSkew": 1}]}},
        "spec.trainer.topologySpread[0]",
    ),
    "no skew": (
        samplers(
            topologySpread=[
                {"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
            ]
        ),
        f"{OTHER}.topologySpread[0].maxSkew",
    ),
    "an owner of its own": (
        {"trainer": {"podTemplate": {"metadata": {"ownerReferences": []}}}},
        "spec.trainer.podTemplate.metadata.ownerReferences",
    ),
    "labels in a list": (
        {"trainer": {"podTemplate": {"metadata": {"labels": ["a"]}}}},
        "spec.trainer.podTemplate.metadata.labels",
    ),
    "a label of no form": (
        {"trainer": {"podTemplate": {"metadata": {"labels": {"a b": "c"}}}}},
        "spec.trainer.podTemplate.metadata.labels",
    ),
    "another restart policy": (
        {"trainer": pod(restartPolicy="Always")},
        "spec.trainer.podTemplate.spec.restartPolicy",
    ),
    "a nameless container": (
        samplers(**pod(containers=[{"image": "x"}])),
        f"{OTHER}.podTemplate.spec.containers[0]",
    ),
    "containers by name": (
        samplers(**pod(containers={"a": {}})),
        f"{OTHER}.podTemplate.spec.containers",
    ),
    "a sidecar without an image": (
        {"trainer": pod(containers=[{"name": "log"}])},
        "spec.trainer.podTemplate.spec.containers[1].image",
    ),
    "a container's name of no form": (
        samplers(**pod(containers=[{"name": "A_b", "image": "x:1"}])),
        f"{OTHER}.podTemplate.spec.containers[1].name",
    ),
    "a volume of two sources": (
        {"trainer": pod(volumes=[{"name": "v", "emptyDir": {}, "configMap": {"name": "m"}}])},
        "spec.trainer.podTemplate.spec.volumes",
    ),
    "a pod misspelt": ({"trainer": pod(volums=[])}, "spec.trainer.podTemplate.spec.volums"),
    "an affinity in a word": (
        samplers(**pod(affinity="near")),
        f"{OTHER}.podTemplate.spec.affinity",
    ),
    "a claim of no source": (
        {"trainer": pod(resourceClaims=[{"name": "gpu"}])},
        "spec.trainer.podTemplate.spec.resourceClaims[0]",
    ),
    "a device that is not claimed": (
        samplers(
            **pod(initContainers=[{"name": "engine", "resources": {"claims": [{"name": "gpu"}]}}])
        ),
        f"{OTHER}.podTemplate.spec.initContainers[1].resources.claims[0]",
    ),
    "the hosts' network's name": (
        samplers(**pod(dnsPolicy="Mine")),
        f"{OTHER}.podTemplate.spec.dnsPolicy",
    ),
}


@pytest.fixture(scope="module")
def refusing(
    servers: Servers, store_server: StoreServer, minio_server: MinioServer
) -> Iterator[World]:
    """One operator for all of them: none makes anything that another could meet."""
    with (
        fresh_settings(store_server, minio_server) as settings,
        connected_stores(settings) as stores,
        a_world(servers, stores, settings) as world,
    ):
        world.make_secret()
        world.upload_inputs()
        world.start_operator(trust_seconds=3600.0)
        yield world


@pytest.mark.parametrize(("sections", "field"), STALLED.values(), ids=STALLED.keys())
def test_violation_beyond_the_schema_stalls_with_its_field(
    refusing: World, sections: dict[str, Any], field: str
) -> None:
    world, operator = refusing, refusing.operator
    assert operator is not None
    name = "job-" + secrets.token_hex(4)
    count, of_kinds = world.writes.count, Counter(world.writes.kinds)
    key = world.make_job(name, **sections)
    for _ in range(ROUNDS):
        operator.jobs.reconcile(key)
    stalled = world.condition(key, "Stalled")
    assert stalled["status"] == "True"
    assert stalled["message"].startswith(field), stalled
    of_reader = (world.writes.kinds - of_kinds) & OF_READER
    assert world.writes.count - count - of_reader.total() <= MOST_WRITES
    made = [kind.name for kind in (kinds.SAMPLER_POOL, kinds.PYTORCH_JOB) if world.objects(kind)]
    assert made == []

    suspended = world.make_job(f"{name}-suspended", **sections, suspend=True)
    operator.jobs.reconcile(suspended)
    assert world.condition(suspended, "Stalled")["message"] == stalled["message"]
    assert not world.condition_now(suspended, "Ready")
    assert world.condition_now(suspended, "Suspended")
