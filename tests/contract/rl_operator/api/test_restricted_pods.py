"""A namespace that enforces the restricted Pod Security standard admits every rendered pod.

Of every example, and of the chart: through the admission of a real API server.
"""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml
from kubernetes import client

from rl_contracts.spec.resources import RLJobSpec, SamplerPoolSpec
from rl_operator.kube import kinds
from rl_operator.kube.api_errors import ApiRefusedError
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.metadata import Meta
from rl_operator.render import reader, trainer
from rl_operator.render.samplers import deployment, own_pods
from tests.contract.rl_operator.reconciling import IMAGES
from tests.contract.rl_operator.world import a_namespace
from tests.kube.apiserver import ApiServer
from tests.samples.manifests import EXAMPLES, documents
from tests.servers import ROOT, binary
from tests.unit.rl_operator.builders import a_meta

Manifest = dict[str, Any]
Pods = Iterator[tuple[str, Manifest]]
"""What a pod is, and its template."""
WORKLOADS = ("Deployment", "StatefulSet", "Job")
PROXY = {"spec": {"containers": [{"name": "proxy", "image": "p:1"}]}}
MOST: Manifest = {
    "agent": {"kind": "Code"},
    "trainer": {"replicas": 2, "podTemplate": PROXY},
    "weightSync": {"transport": {"relay": True}},
    "storage": {"secretName": "stores"},
}
"""Sections that add containers, volumes and ports to those of an example."""


def examples() -> Iterator[tuple[str, Manifest]]:
    for path in EXAMPLES:
        for manifest in documents(path.read_text()):
            if manifest["kind"] in ("RLJob", "SamplerPool"):
                yield f"{path.stem} {manifest['kind']} {manifest['metadata']['name']}", manifest


def jobs() -> dict[str, tuple[Meta, RLJobSpec]]:
    """The jobs of the examples by name; those of shared pools with the pool's template."""
    made = {}
    shared = {
        manifest["metadata"]["name"]: SamplerPoolSpec.model_validate(manifest["spec"]).template
        for _, manifest in examples()
        if manifest["kind"] == "SamplerPool"
    }
    for name, manifest in examples():
        if manifest["kind"] == "RLJob":
            spec = RLJobSpec.model_validate(manifest["spec"])
            groups = [
                group if group.pool_ref is None else group.resolved(shared[group.pool_ref.name])
                for group in spec.samplers
            ]
            meta = a_meta(manifest["metadata"]["name"])
            made[name] = (meta, spec.model_copy(update={"samplers": groups}))
    return made


def of_job(meta: Meta, spec: RLJobSpec) -> Pods:
    yield "trainer", trainer.pod_template(meta, spec, attempt=1, images=IMAGES)
    for group in spec.samplers:
        template = deployment.pod_template(meta, spec, group, images=IMAGES)
        yield f"samplers {group.name}", template
        if own_pods.field_of(spec):
            template = own_pods.of_group(meta, spec, group, images=IMAGES)
            yield f"beside {group.name}", template


def of_shared_engine() -> Pods:
    """Several runs with sandboxes at one engine."""
    spec = RLJobSpec.model_validate(
        yaml.safe_load((ROOT / "examples/minimal.yaml").read_text())["spec"] | MOST
    )
    runs = [(a_meta(name), spec) for name in ("a", "b")]
    pool = SamplerPoolSpec.model_validate(
        {"model": {"uri": spec.model.uri}, "maxRuns": 2, "template": {"podTemplate": PROXY}}
    )
    (job, job_spec), *beside = runs
    manifest = deployment.render(
        a_meta("pool"), pool, job=job, job_spec=job_spec, replicas=1, images=IMAGES, beside=beside
    )
    yield "samplers of two runs", manifest["spec"]["template"]
    yield from of_job(job, job_spec)


@functools.cache
def of_chart() -> list[tuple[str, Manifest]]:
    images = [
        f"--set=images.{name}={name}:1"
        for name in ("operator", "trainer", "sampler", "engine", "store", "minio")
    ]
    command = [
        binary("helm"),
        "template",
        "rl",
        str(ROOT / "charts/rl-operator"),
        "--kube-version=1.34.0",
    ]
    options = ["--set=stores.embedded.enabled=true,operator.replicas=2"]
    options += ["--set=dashboard.enabled=true,dashboard.tlsSecretName=runs-tls"]
    done = subprocess.run([*command, *images, *options], check=True, capture_output=True, text=True)
    return [
        (f"{manifest['kind']} {manifest['metadata']['name']}", manifest["spec"]["template"])
        for manifest in documents(done.stdout)
        if manifest and manifest["kind"] in WORKLOADS
    ]


@pytest.fixture(scope="module")
def restricted(apiserver: ApiServer, api: client.ApiClient) -> tuple[Cluster, str]:
    """A namespace that admits pods of the restricted standard alone."""
    namespace = a_namespace(apiserver)
    for mode in ("enforce", "warn"):
        label = f"pod-security.kubernetes.io/{mode}=restricted"
        apiserver.kubectl("label", "namespace", namespace, label)
    return Cluster(api, may_write=lambda: None, count=lambda verb, kind: None), namespace


def refusal(restricted: tuple[Cluster, str], template: Manifest) -> str:
    """What the API server says to a pod; empty if it admits it."""
    cluster, namespace = restricted
    metadata = {key: template["metadata"].get(key, {}) for key in ("labels", "annotations")}
    pod = {
        "apiVersion": kinds.POD.api_version,
        "kind": kinds.POD.name,
        "metadata": {**metadata, "generateName": "pod-", "namespace": namespace},
        "spec": template["spec"],
    }
    try:
        cluster.try_out(kinds.POD, pod)
    except ApiRefusedError as error:
        return error.message
    return ""


def test_pods_of_each_example_are_admitted(restricted: tuple[Cluster, str]) -> None:
    assert len(jobs()) >= 12
    for name, (meta, spec) in jobs().items():
        for what, template in of_job(meta, spec):
            assert refusal(restricted, template) == "", (name, what)


def test_servers_of_the_examples_are_admitted(restricted: tuple[Cluster, str]) -> None:
    servers = [
        (path.name, manifest["spec"]["template"])
        for path in sorted((ROOT / "examples").glob("*/*.yaml"))
        for manifest in documents(path.read_text())
        if manifest.get("kind") in WORKLOADS
    ]
    assert {"browser.yaml", "calculator.yaml", "service.yaml"} <= {name for name, _ in servers}
    for name, template in servers:
        assert refusal(restricted, template) == "", name


def test_pods_with_all_parts_are_admitted(restricted: tuple[Cluster, str]) -> None:
    for what, template in of_shared_engine():
        assert refusal(restricted, template) == "", what
        names = [each["name"] for each in template["spec"]["containers"]]
        assert "proxy" in names or what.startswith("samplers main")


def test_readers_are_admitted(restricted: tuple[Cluster, str]) -> None:
    pod = reader.pod(restricted[1], "stores", replace(IMAGES), token_sha256="0")
    assert refusal(restricted, pod) == ""


def test_pods_of_the_chart_are_admitted(restricted: tuple[Cluster, str]) -> None:
    for what, template in of_chart():
        template["spec"]["volumes"] = [
            *template["spec"].get("volumes", []),
            *([{"name": "data", "emptyDir": {}}] if "StatefulSet" in what else []),
        ]
        assert refusal(restricted, template) == "", what
    assert len(of_chart()) == 5


def test_the_namespace_refuses_what_the_standard_refuses(restricted: tuple[Cluster, str]) -> None:
    ((_, template), *_) = of_chart()
    loose = {**template, "spec": {**template["spec"], "hostNetwork": True}}
    assert "violates PodSecurity" in refusal(restricted, loose)
