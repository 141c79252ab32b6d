"""The chart against a real API server: an upgrade takes no running job's stores away."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from rl_operator.kube import names
from rl_operator.render.metadata import labels
from rl_operator.render.samplers.shared_engine import Seat
from tests.contract.rl_operator.world import World
from tests.samples.manifests import documents
from tests.servers import NEVER, ROOT, binary
from tests.waiting import HUNG_SECONDS

PROMETHEUS = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
IMAGES = ("operator", "trainer", "sampler", "engine", "store", "minio")


def render(
    world: World, *namespaces: str, more: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """What an upgrade with these ``stores.namespaces`` would apply, or why it refuses.

    The release is named after the world's namespace: other tests' jobs are of other releases.
    """
    values = [f"--set=images.{name}={name}:1" for name in IMAGES]
    listed = f"--set-json=stores.namespaces={json.dumps(namespaces)}"
    embedded = "--set=stores.embedded.enabled=true,stores.embedded.allowSharing=true"
    return helm(
        world,
        "template",
        world.namespace,
        "--kube-version",
        "1.34.0",
        "--api-versions",
        "rl-operator.io/v1alpha1/RLJob",
        *values,
        listed,
        embedded,
        *more,
    )


def helm(world: World, verb: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run helm up to the point where it would write, with the API server's answers to lookups."""
    return subprocess.run(
        [
            binary("helm"),
            verb,
            *options,
            str(ROOT / "charts/rl-operator"),
            "--namespace",
            "default",
            "--dry-run=server",
            "--kubeconfig",
            str(world.apiserver.kubeconfig),
        ],
        capture_output=True,
        text=True,
        timeout=HUNG_SECONDS,
        check=False,
        env=os.environ | NEVER,
    )


@pytest.mark.parametrize(
    ("own", "ended", "refused"),
    [(True, "", True), (False, "", False), (True, "Complete", False)],
)
def test_rendering_may_not_drop_a_namespace_with_running_jobs(
    world: World, own: bool, ended: str, refused: bool
) -> None:
    world.make_secret()
    release = world.namespace if own else "other"
    world.apiserver.kubectl(
        "-n",
        world.namespace,
        "label",
        "secret",
        "rl-operator-stores",
        f"app.kubernetes.io/instance={release}",
    )
    job = world.make_job()
    if ended:
        fields = {"type": ended, "status": "True", "reason": "R", "observedGeneration": 1}
        condition = {**fields, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        world.set_status("rljob", job.name, {"conditions": [condition]})
    assert render(world, world.namespace).returncode == 0
    done = render(world)
    assert (done.returncode != 0) is refused
    assert (f"leaves out {world.namespace}, where RLJob job" in done.stderr) is refused


def test_store_secrets_are_kept_when_removed_from_the_chart(world: World) -> None:
    rendered = documents(render(world, world.namespace).stdout)
    kept = [
        manifest["metadata"]["annotations"]["helm.sh/resource-policy"]
        for manifest in rendered
        if manifest
        and manifest["kind"] == "Secret"
        and manifest["metadata"]["name"] == "rl-operator-stores"
    ]
    assert kept == ["keep", "keep"]  # of the namespace and of the release's own


def objects(world: World, *values: str) -> list[dict[str, Any]]:
    """What the chart renders with these values."""
    done = render(world, more=[f"--set-json={value}" for value in values])
    assert done.returncode == 0, done.stderr
    return documents(done.stdout)


def test_only_a_given_password_is_the_same_in_each_rendering(world: World) -> None:
    for value, number in (('""', 2), ('"long enough"', 1)):
        rendered = (objects(world, f"stores.password={value}") for _ in range(2))
        secrets = (
            [manifest["data"] for manifest in each if manifest["kind"] == "Secret"]
            for each in rendered
        )
        of_minio = {
            secret["rootPassword"] for each in secrets for secret in each if "rootUser" in secret
        }
        assert len(of_minio) == number


def test_the_name_of_the_buckets_user_is_part_of_no_other_text(world: World) -> None:
    """Credentials are hidden wherever they stand, e.g. in the names of hosts."""
    manifests = objects(world)
    (user,) = (
        base64.b64decode(manifest["data"]["rootUser"]).decode()
        for manifest in manifests
        if "rootUser" in manifest.get("data", {})
    )
    assert len(user) == 20
    assert user not in json.dumps([each for each in manifests if each["kind"] != "Secret"])


def test_extra_labels_are_on_all_objects_and_in_no_selector(world: World) -> None:
    monitors = (
        "serviceMonitor.enabled=true",
        f"networkPolicy.metricsFrom=[{json.dumps(PROMETHEUS)}]",
        "podMonitor.enabled=true",
        "kueue.enabled=true",
        "agentSandbox.enabled=true",
    )
    manifests = objects(world, 'extraLabels={"release": "prometheus"}', *monitors)
    for manifest in manifests:
        if manifest["kind"] == "CustomResourceDefinition":
            continue  # of all releases
        assert manifest["metadata"]["labels"]["release"] == "prometheus", manifest["metadata"][
            "name"
        ]
        spec = manifest.get("spec", {})
        assert "prometheus" not in json.dumps([spec.get("selector"), spec.get("podSelector")])


def test_standby_is_scheduled_to_another_node(world: World) -> None:
    def pod(replicas: int) -> dict[str, Any]:
        values = (f"operator.replicas={replicas}", 'operator.priorityClassName="cluster"')
        (made,) = [
            manifest for manifest in objects(world, *values) if manifest["kind"] == "Deployment"
        ]
        return dict(made["spec"]["template"])

    assert "topologySpreadConstraints" not in pod(1)["spec"]
    (spread,) = pod(2)["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"].items() <= pod(2)["metadata"]["labels"].items()
    assert pod(2)["spec"]["priorityClassName"] == "cluster"


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ('watchNamespaces=["a", "a"]', "watchNamespaces"),
        ('watchNamespaces=["A"]', "watchNamespaces"),
        ('stores.namespaces=["a.b"]', "stores"),
        ('stores.password="short"', "password"),
        ('extraLabels={"helm.sh/chart": "mine"}', "helm.sh/chart"),
        ('extraLabels={"team": 5}', "extraLabels"),
        ('extraLabels={"team": "b c"}', "extraLabels"),
        ('stores.size="abc"', "size"),
        ("operator.replica=2", "replica"),
        ('networkpolicy={"enabled": false}', "networkpolicy"),
    ],
)
def test_invalid_value_is_refused_with_its_name(world: World, value: str, place: str) -> None:
    done = render(world, more=[f"--set-json={value}"])
    assert done.returncode != 0
    assert "schema" in done.stderr
    assert place in done.stderr


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("images.requireDigest=true", ":1, and images.requireDigest is true"),
        ("images.engine=host:5000/engine", "images.engine is host:5000/engine, which names no tag"),
        ("images.engine=engine:latest", "images.engine is engine:latest"),
        ("stores.embedded.enabled=false", "[a], and it is for the embedded stores, which are off"),
        ("kueue.required=true", "kueue.required is true, and without kueue.enabled"),
    ],
)
def test_value_that_could_not_be_kept_is_refused(world: World, values: str, expected: str) -> None:
    done = render(world, "a", more=[f"--set={values}"])
    assert done.returncode != 0
    assert expected in done.stderr


def test_rules_of_the_administrator_reach_the_operator_and_the_policy(world: World) -> None:
    def rendered(*values: str) -> tuple[list[str], str]:
        manifests = objects(world, *values)
        (operator,) = [each for each in manifests if each["kind"] == "Deployment"]
        policies = [each for each in manifests if each["kind"] == "ValidatingAdmissionPolicy"]
        (container,) = operator["spec"]["template"]["spec"]["containers"]
        for policy in policies:  # the API server compiles the expressions
            dry = ("create", "--dry-run=server", "-f", "-")
            world.apiserver.kubectl(*dry, stdin=json.dumps(policy))
        return container["args"], json.dumps(policies)

    rules = ("--service-account=buckets", "--allow-unrestricted-pods", "--require-queue")
    arguments, policy = rendered()
    assert not set(rules) & set(arguments)
    assert "['','default']" in policy
    arguments, policy = rendered(
        'pods={"serviceAccounts": ["buckets"], "allowUnrestricted": true}',
        'kueue={"enabled": true, "required": true}',
    )
    assert set(rules) <= set(arguments)
    assert "['','default','buckets']" in policy
    assert "may render no pod of a service account" not in rendered('pods.serviceAccounts=["*"]')[1]
    assert rendered('admissionPolicy={"enabled": false}')[1] == "[]"


def test_embedded_stores_serve_one_namespace(world: World) -> None:
    alone = ["--set=stores.embedded.allowSharing=false"]
    assert render(world, "a", more=alone).returncode == 0
    refused = render(world, "a", "b", more=alone)
    assert refused.returncode != 0
    assert "stores.namespaces has 2 namespaces" in refused.stderr
    assert "stores.embedded.allowSharing=true" in refused.stderr
    assert render(world, "a", "b").returncode == 0


def test_no_stores_are_installed_by_default() -> None:
    values = yaml.safe_load((ROOT / "charts/rl-operator/values.yaml").read_text())
    assert values["stores"]["embedded"] == {"enabled": False, "allowSharing": False}


def test_helm_upgrade_may_not_drop_a_namespace_with_running_jobs(world: World) -> None:
    world.make_secret()
    world.apiserver.kubectl(
        "-n",
        world.namespace,
        "label",
        "secret",
        "rl-operator-stores",
        f"app.kubernetes.io/instance={world.namespace}",
    )
    world.make_job()
    values = [f"--set=images.{name}={name}:1" for name in IMAGES]
    values.append("--set=stores.embedded.enabled=true")
    done = helm(world, "upgrade", "--install", world.namespace, *values)
    assert f"leaves out {world.namespace}, where RLJob job" in done.stderr


def test_the_pod_monitor_finds_the_pods_of_runs(world: World) -> None:
    rendered = render(world, more=["--set=podMonitor.enabled=true"])
    assert rendered.returncode == 0, rendered.stderr
    (monitor,) = [
        manifest
        for manifest in documents(rendered.stdout)
        if manifest and manifest["kind"] == "PodMonitor"
    ]
    selector = monitor["spec"]["selector"]
    (component,) = selector["matchExpressions"]
    assert component["key"] == names.COMPONENT_LABEL
    for name in ("trainer", "sampler"):
        pod = labels(job="job", run="run", component=name)
        assert selector["matchLabels"].items() <= pod.items()
        assert pod[component["key"]] in component["values"]
    endpoint, *of_several = monitor["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("http", "/metrics")
    seats = [Seat(job="job", number=number, runs=8) for number in range(8)]
    assert [endpoint["port"] for endpoint in of_several] == [seat.named("http") for seat in seats]


def test_only_prometheus_and_the_node_reach_the_operators_port(world: World) -> None:
    def policy(manifests: list[dict[str, Any]]) -> dict[str, Any]:
        (made,) = [
            manifest["spec"]
            for manifest in manifests
            if manifest["kind"] == "NetworkPolicy" and manifest["metadata"]["name"] == "rl-operator"
        ]
        return dict(made)

    manifests = objects(world)
    (pod,) = [each["spec"]["template"] for each in manifests if each["kind"] == "Deployment"]
    closed = policy(manifests)
    assert closed["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert closed["policyTypes"] == ["Ingress"]
    viewers = {"ports": [{"port": "data", "protocol": "TCP"}]}
    assert closed["ingress"] == [viewers]
    assert "ingress" not in policy(objects(world, "runData.enabled=false"))
    scraped = policy(objects(world, f"networkPolicy.metricsFrom=[{json.dumps(PROMETHEUS)}]"))
    assert scraped["ingress"] == [
        {"from": [PROMETHEUS], "ports": [{"port": "http", "protocol": "TCP"}]},
        viewers,
    ]
    done = render(world, more=["--set=serviceMonitor.enabled=true"])
    assert done.returncode != 0
    assert "networkPolicy.metricsFrom is empty" in done.stderr


def minio_pod(world: World, *values: str) -> dict[str, Any]:
    """The template of MinIO's pod."""
    (found,) = (
        each["spec"]["template"]
        for each in objects(world, *values)
        if each["kind"] == "StatefulSet" and each["metadata"]["name"] == "rl-operator-minio"
    )
    template: dict[str, Any] = found
    return template


def test_minio_restarts_for_another_password_and_for_nothing_else(world: World) -> None:
    password = f"stores.password={json.dumps('weak-password')}"
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "rl-operator-minio", "namespace": "default"},
        "stringData": {"rootUser": "user", "rootPassword": "generated-earlier"},
    }
    world.apiserver.kubectl("apply", "-f", "-", stdin=json.dumps(secret))
    try:
        kept, again = minio_pod(world), minio_pod(world)
        changed = minio_pod(world, password)
    finally:
        world.apiserver.kubectl("-n", "default", "delete", "secret", "rl-operator-minio")
    assert kept == again
    assert kept != changed
    assert {**kept, "metadata": {}} == {**changed, "metadata": {}}
    assert "weak-password" not in json.dumps(changed)
