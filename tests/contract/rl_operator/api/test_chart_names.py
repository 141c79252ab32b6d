"""Names in the objects of the chart, as Helm renders them: of releases, and as users give them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.samples.manifests import documents
from tests.servers import ROOT, binary
from tests.waiting import HUNG_SECONDS

EVERYTHING = ("image.registry=ghcr.io/you/rl-operator", "kueue.enabled=true")
DIGITS = "1234"
NAMED_BY_DIGITS = {
    "watchNamespaces": [DIGITS],
    "stores": {
        "embedded": {"enabled": True},
        "namespaces": [DIGITS],
        "bucket": DIGITS,
        "storageClass": DIGITS,
    },
    "imagePullSecrets": [{"name": DIGITS}],
    "extraLabels": {"team": DIGITS},
    "pods": {"serviceAccounts": [DIGITS]},
    "operator": {"priorityClassName": DIGITS, "replicas": 2},
    "runData": {"viewers": [DIGITS]},
    "dashboard": {"enabled": True, "tlsSecretName": DIGITS},
    "podMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
    "grafana": {"dashboards": {"enabled": True, "labels": {"team": DIGITS}}},
}
"""A value of each template in which a user's text stands alone."""


def rendered(release: str, namespace: str, *values: str) -> list[dict[str, Any]]:
    """The objects of a release in a namespace."""
    command = [binary("helm"), "template", release, str(ROOT / "charts/rl-operator")]
    command += [f"--namespace={namespace}", "--kube-version=1.34.0"]
    command += [f"--set={value}" for value in EVERYTHING]
    command += [f"--set-json={value}" for value in values]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=HUNG_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    return documents(done.stdout)


def without_namespace(manifests: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for manifest in manifests:
        if "namespace" not in manifest["metadata"]:
            yield manifest["kind"], manifest["metadata"]["name"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("rl", "team-a"), ("rl", "team-b")),
        (("rl", "team-a"), ("rl-a", "team")),
        (("rl-nodes", "team"), ("rl", "nodes-team")),
    ],
)
def test_two_releases_share_no_object_without_a_namespace(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    """Applied without Helm's check, the second release would take the first one's rights away."""
    ours = set(without_namespace(rendered(*one, "crds.install=false")))
    assert {kind for kind, _ in ours} >= {
        *("ClusterRole", "ClusterRoleBinding"),
        *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    }
    assert not ours & set(without_namespace(rendered(*other, "crds.install=false")))


def accounts(part: Any) -> Iterator[str]:
    """Service accounts that parts of a manifest are for."""
    for at, value in leaves(part):
        if isinstance(value, str) and "system:serviceaccount:" in value:
            yield value.split("'")[1].split(":")[-1]
        elif at.endswith(".serviceAccountName"):
            yield value
    for subject in part.get("subjects", []):
        if subject["kind"] == "ServiceAccount":
            yield subject["name"]


def test_what_an_upgrade_without_pruning_leaves_does_not_hold_for_the_operator() -> None:
    """Its policy and ClusterRoles had other names, and were for the account rl-operator."""
    named: dict[str, set[str]] = {}
    for each in rendered("rl", "team"):
        named.setdefault(each["kind"], set()).update(accounts(each))
    (account,) = named["Deployment"]
    assert account != "rl-operator"
    for kind in ("ValidatingAdmissionPolicy", "ClusterRoleBinding", "RoleBinding"):
        assert named[kind] == {account}, kind


def leaves(part: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(part, dict | list):
        items = part.items() if isinstance(part, dict) else enumerate(part)
        for key, each in items:
            yield from leaves(each, f"{at}.{key}")
    else:
        yield at, part


def test_names_of_digits_stay_text() -> None:
    """YAML reads them as numbers, which the API server refuses."""
    values = [f"{name}={json.dumps(value)}" for name, value in NAMED_BY_DIGITS.items()]
    manifests = rendered(DIGITS, DIGITS, *values)
    named = [
        (f"{each['kind']} {each['metadata']['name']}{at}", value)
        for each in manifests
        for at, value in leaves(each)
        if str(value) == DIGITS
    ]
    assert len(named) > 100
    assert [at for at, value in named if not isinstance(value, str)] == []
