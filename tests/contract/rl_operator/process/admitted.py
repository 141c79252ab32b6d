"""Objects that the operator writes, and what the chart's admission policy says to a write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rl_contracts.spec.resources import RLJobSpec, SamplerPoolSpec
from rl_operator.kube import kinds
from rl_operator.kube.api_errors import ApiRefusedError
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.metadata import Meta
from rl_operator.kube.settings import Images
from rl_operator.render import reader as rendered
from rl_operator.render import trainer
from rl_operator.render.metadata import labels, owned_by
from rl_operator.render.samplers import own_pods
from tests.samples.manifests import a_job

Manifest = dict[str, Any]
Change = Callable[[Manifest], Any]
KINDS = {kind.name: kind for kind in (*kinds.WRITTEN, kinds.POD, kinds.LEASE, kinds.EVENT)}
IMAGES = Images(
    operator="operator:1", trainer="t:1", sampler="s:1", engine="e:1", pull_policy="IfNotPresent"
)


@dataclass(frozen=True)
class Place:
    """A namespace under the chart's policy."""

    administrator: Cluster
    operator: Cluster
    namespace: str


def refusal(write: Callable[[], object]) -> str:
    """What the policy says to a write; empty if it admits it."""
    message = ""
    try:
        write()
    except ApiRefusedError as error:
        message = error.message
    assert not message or "'rl-operator-writes.rl-system'" in message
    return message


def refused(cluster: Cluster, manifest: Manifest) -> str:
    """What the policy says to the creation of an object."""
    kind = KINDS[manifest["kind"]]
    return refusal(lambda: cluster.try_out(kind, manifest))


def job_of(namespace: str) -> Meta:
    metadata = {
        "name": "job",
        "namespace": namespace,
        "uid": "0f8b0c1e-0000-4000-8000-000000000000",
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return Meta.parse({"metadata": metadata})


def a_reader(namespace: str) -> Manifest:
    return rendered.pod(namespace, "rl-operator-stores", IMAGES, token_sha256="0" * 64)


def a_trainer(namespace: str) -> Manifest:
    spec = RLJobSpec.model_validate(a_job()["spec"])
    return trainer.render(job_of(namespace), spec, attempt=1, images=IMAGES)


def a_deployment(namespace: str) -> Manifest:
    pod = a_trainer(namespace)["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    pod["spec"] |= {"restartPolicy": "Always"}
    mine = labels(job="job", run="run", component="sampler", pool="job-main")
    return {
        "apiVersion": kinds.DEPLOYMENT.api_version,
        "kind": kinds.DEPLOYMENT.name,
        "metadata": {
            "name": "job-main",
            "namespace": namespace,
            "labels": mine,
            "ownerReferences": owned_by(job_of(namespace), kinds.SAMPLER_POOL),
        },
        "spec": {
            "selector": {"matchLabels": mine},
            "template": {**pod, "metadata": {"labels": mine}},
        },
    }


PROGRAM = {"command": ["a"], "onFailure": "RewardZero"}
AGENTS: list[Manifest] = [
    {"kind": "Program", "program": PROGRAM},
    {"kind": "Environment", "environment": {"image": "game:1", "copies": 2}},
]


def own_pods_of(pool: Meta, agent: Manifest) -> list[Manifest]:
    """The objects of a pool whose programs or environments run in pods of their own."""
    spec = RLJobSpec.model_validate(a_job(agent=agent)["spec"])
    template = spec.samplers[0].template
    of_pool = SamplerPoolSpec(job="job", template=template)
    return own_pods.beside(pool, of_pool, job=pool, job_spec=spec, size=1, images=IMAGES)
