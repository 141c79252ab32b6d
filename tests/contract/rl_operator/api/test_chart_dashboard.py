"""The chart's dashboard, as Helm renders it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rl_console.dashboard.__main__ import _parser as parser
from tests.contract.rl_operator.api.test_chart_images import REGISTRY, VERSION, helm
from tests.samples.manifests import documents

ON = (REGISTRY, "dashboard.enabled=true")
NAME = "rl-operator-dashboard"


def objects(*values: str) -> dict[str, dict[str, Any]]:
    """The dashboard's objects by kind."""
    done = helm(*values)
    assert done.returncode == 0, done.stderr
    named = documents(done.stdout)
    return {each["kind"]: each for each in named if each["metadata"]["name"] == NAME}


def pod(*values: str) -> dict[str, Any]:
    return dict(objects(*ON, *values)["Deployment"]["spec"]["template"]["spec"])


def test_it_is_off_by_default() -> None:
    assert objects(REGISTRY) == {}


def test_its_pod_holds_no_token_and_has_a_limit() -> None:
    spec = pod()
    (container,) = spec["containers"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["serviceAccountName"] == NAME
    assert container["image"] == f"ghcr.io/you/rl-operator/operator:{VERSION}"
    assert container["resources"]["limits"] == {"memory": "512Mi"}
    assert {"livenessProbe", "readinessProbe"} <= container.keys()
    assert not [each for each in spec["volumes"] if "projected" in each or "secret" in each]


def test_its_arguments_are_those_of_the_program() -> None:
    for values in ((), ("dashboard.tlsSecretName=runs-tls",)):
        (container,) = pod(*values)["containers"]
        options = parser().parse_args(container["args"])
        assert options.operator_namespace == "default"
        mounted = {each["mountPath"] for each in container["volumeMounts"]}
        assert str(options.authorities.parent) in mounted
        assert options.tls_folder is None or str(options.tls_folder) in mounted
        assert container["ports"][0]["containerPort"] == options.port


def test_a_secret_makes_it_https_for_users_and_probes() -> None:
    plain, secure = objects(*ON), objects(*ON, "dashboard.tlsSecretName=runs-tls")
    for made, scheme, port in ((plain, "HTTP", 80), (secure, "HTTPS", 443)):
        (container,) = made["Deployment"]["spec"]["template"]["spec"]["containers"]
        for probe in ("livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["scheme"] == scheme
        assert made["Service"]["spec"]["ports"][0]["port"] == port


def test_only_named_peers_may_connect() -> None:
    assert "ingress" not in objects(*ON)["NetworkPolicy"]["spec"]
    peers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}]
    named = "networkPolicy.dashboardFrom[0].namespaceSelector.matchLabels.kubernetes\\.io/metadata"
    (rule,) = objects(*ON, f"{named}\\.name=ingress")["NetworkPolicy"]["spec"]["ingress"]
    assert rule["from"] == peers, json.dumps(rule)
    assert "NetworkPolicy" not in objects(*ON, "networkPolicy.enabled=false")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("runData.enabled=false", "set runData.enabled=true"),
        ("dashboard.replicas=0", "dashboard/replicas"),
        ("dashboard.tls=true", "tls"),
    ],
)
def test_what_it_cannot_do_is_refused(value: str, expected: str) -> None:
    done = helm(*ON, value)
    assert done.returncode != 0
    assert expected in done.stderr.replace("dashboard.replicas", "dashboard/replicas")
