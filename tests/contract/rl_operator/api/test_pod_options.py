"""Options that go to pods as they are: service accounts, variables from Secrets and ConfigMaps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rl_operator.kube import kinds
from tests.contract.rl_operator.world import World, a_namespace
from tests.kube.apiserver import ApiServer

Manifest = dict[str, Any]
VARIABLES: Manifest = {
    "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "k"}}}],
    "envFrom": [{"secretRef": {"name": "keys"}}, {"configMapRef": {"name": "urls"}}],
}
TOKEN = "/var/run/secrets/eks.amazonaws.com/serviceaccount"
SKIPPED = "eks.amazonaws.com/skip-containers"


def with_identity(template: Manifest) -> Manifest:
    """A pod as a cloud's webhook leaves it: a token of its service account in each container."""
    skipped = template["metadata"].get("annotations", {}).get(SKIPPED, "").split(",")
    pod = json.loads(json.dumps(template["spec"]))
    source = {"serviceAccountToken": {"audience": "sts.amazonaws.com", "path": "token"}}
    pod["volumes"].append({"name": "aws-iam-token", "projected": {"sources": [source]}})
    mount = {"name": "aws-iam-token", "mountPath": TOKEN, "readOnly": True}
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        if container["name"] not in skipped:
            container["volumeMounts"].append(mount)
            container["env"].append(
                {"name": "AWS_WEB_IDENTITY_TOKEN_FILE", "value": f"{TOKEN}/token"}
            )
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": pod}


def restricted(apiserver: ApiServer) -> str:
    """A namespace that admits pods of the restricted standard alone."""
    namespace = a_namespace(apiserver)
    label = "pod-security.kubernetes.io/enforce=restricted"
    apiserver.kubectl("label", "namespace", namespace, label)
    return namespace


@pytest.mark.parametrize("kind", ["SingleTurn", "Code"])
def test_pods_with_a_clouds_identity_meet_the_restricted_standard(world: World, kind: str) -> None:
    world.make_secret()
    world.upload_inputs()
    own = {"serviceAccountName": "buckets"} | VARIABLES
    template = own | {"engine": VARIABLES}
    job = world.make_job(
        agent={"kind": kind}, trainer=own, samplers=[{"name": "main", "template": template}]
    )
    world.settle(job)
    world.start_samplers(str(world.status(job)["runId"]), count=1)
    world.settle(job)
    (deployment,), (trainer,) = world.objects(kinds.DEPLOYMENT), world.objects(kinds.PYTORCH_JOB)
    templates = [
        deployment["spec"]["template"],
        trainer["spec"]["pytorchReplicaSpecs"]["Worker"]["template"],
    ]
    namespace = restricted(world.apiserver)
    for manifest in templates:
        assert manifest["spec"]["serviceAccountName"] == "buckets"
        assert manifest["spec"]["automountServiceAccountToken"] is False
        pod = json.dumps(with_identity(manifest))
        world.apiserver.kubectl("-n", namespace, "create", "--dry-run=server", "-f", "-", stdin=pod)
    sandboxes = [
        init_container
        for init_container in with_identity(templates[0])["spec"]["initContainers"]
        if init_container["name"] == "sandbox"
    ]
    assert len(sandboxes) == (kind == "Code")
    assert not any(TOKEN in json.dumps(sandbox) for sandbox in sandboxes)
    world.start_operator()
    writes = world.writes.count
    world.settle(job)
    assert world.writes.count == writes


def stalled_jobs(world: World, options: Manifest) -> Iterator[tuple[str, Manifest]]:
    """A job with these options of the trainer, and one with them of the samplers: path, Stalled."""
    world.make_secret()
    world.upload_inputs()
    places: dict[str, Manifest] = {
        "spec.trainer": {"trainer": options},
        "spec.samplers[0].template": {"samplers": [{"name": "main", "template": options}]},
    }
    for number, (at, sections) in enumerate(places.items()):
        job = world.make_job(f"job-{number}", **sections)
        world.settle(job)
        yield at, world.condition(job, "Stalled")


REFUSED: dict[str, tuple[Manifest, str]] = {
    "a value that is also somebody else's": (
        {"env": [{"name": "A"}, VARIABLES["env"][0] | {"value": "1"}]},
        "env[1].valueFrom",
    ),
    "a source of nothing": ({"envFrom": [{"secretRef": {"name": "a"}}, {}]}, "envFrom"),
    "a field of no name": ({"envFrom": [{"secret": {"name": "a"}}]}, "envFrom[0].secret"),
}


@pytest.mark.parametrize(("options", "field"), REFUSED.values(), ids=REFUSED.keys())
def test_option_refused_by_core_v1_is_reported_with_the_job_s_field(
    world: World, options: Manifest, field: str
) -> None:
    for at, stalled in stalled_jobs(world, options):
        assert stalled["reason"] == "PodRefused"
        assert f"{at}.{field}" in stalled["message"]


LOOSE: dict[str, tuple[Manifest, str, str]] = {
    "the node's network": (
        {"podTemplate": {"spec": {"hostNetwork": True}}},
        "podTemplate.spec.hostNetwork",
        "PodLoosened",
    ),
    "another service account": (
        {"serviceAccountName": "admin"},
        "serviceAccountName",
        "ServiceAccountRefused",
    ),
    "an image without a tag": ({"image": "registry.example/t"}, "image", "ImageNotPinned"),
}


@pytest.mark.parametrize(("options", "field", "reason"), LOOSE.values(), ids=LOOSE.keys())
def test_pod_that_may_do_more_is_refused_before_it_exists(
    world: World, options: Manifest, field: str, reason: str
) -> None:
    for at, stalled in stalled_jobs(world, options):
        assert stalled["reason"] == reason
        assert stalled["message"].startswith(f"{at}.{field} = ")
    for kind in (kinds.DEPLOYMENT, kinds.PYTORCH_JOB, kinds.SAMPLER_POOL, kinds.CONFIG_MAP):
        ours = [each for each in world.objects(kind) if each["metadata"].get("ownerReferences")]
        assert ours == []


def test_a_field_that_a_trainers_pods_would_lose_is_refused(world: World) -> None:
    world.make_secret()
    world.upload_inputs()
    own = {"podTemplate": {"spec": {"resources": {"requests": {"cpu": "8"}}}}}
    job = world.make_job(trainer=own)
    world.settle(job)
    stalled = world.condition(job, "Stalled")
    assert stalled["reason"] == "PodRefused"
    assert stalled["message"].startswith("spec.trainer.podTemplate.spec.resources = ")
    assert "training-operator's PyTorchJob has no such field" in stalled["message"]
    samplers = world.make_job("other", samplers=[{"name": "main", "template": own}])
    world.settle(samplers)
    assert world.condition(samplers, "Stalled") == {}
