"""The operator's rights: what it uses, and no more."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rl_operator.stores import reader_key

TEMPLATES = Path(__file__).resolve().parents[3] / "charts" / "rl-operator" / "templates"


def rules() -> list[dict[str, Any]]:
    """Those of the ClusterRole, and of each Role where namespaces are named."""
    text = (TEMPLATES / "_helpers.tpl").read_text()
    _, _, rest = text.partition('{{- define "rl.rules" -}}')
    body, _, _ = rest.partition("{{- define")
    parsed = yaml.safe_load("\n".join(line for line in body.splitlines() if "{{" not in line))
    assert isinstance(parsed, list)
    return parsed


def verbs(resource: str) -> set[str]:
    return {verb for rule in rules() if resource in rule["resources"] for verb in rule["verbs"]}


def test_the_only_secret_of_the_operator_is_a_key_of_its_own() -> None:
    assert not [rule for rule in rules() if "secrets" in rule["resources"]]
    (rule,) = re.findall(
        r"- apiGroups: .*\n  resources: \[secrets\]\n(?:  .*\n)*",
        (TEMPLATES / "rbac.yaml").read_text(),
    )
    assert yaml.safe_load(rule) == [
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": [reader_key.NAME],
            "verbs": ["get", "create", "patch"],
        }
    ]


def test_all_that_the_operator_may_do_with_nodes_is_to_list_them() -> None:
    assert not verbs("nodes")
    (rule,) = re.findall(
        r"- apiGroups: .*\n  resources: \[nodes\]\n(?:  .*\n)*",
        (TEMPLATES / "rbac.yaml").read_text(),
    )
    assert yaml.safe_load(rule)[0]["verbs"] == ["list"]


def test_no_right_is_for_everything() -> None:
    for rule in rules():
        for part in ("apiGroups", "resources", "verbs"):
            assert not any("*" in value for value in rule[part]), rule
    assert "*" not in (TEMPLATES / "rbac.yaml").read_text()


@pytest.mark.parametrize(
    ("resource", "never"),
    [
        ("rljobs", {"create", "update"}),
        ("pods", {"update"}),
        ("deployments", {"delete", "update"}),
        ("configmaps", {"list", "watch", "patch", "update", "delete"}),
        ("networkpolicies", {"list", "watch", "update"}),
        ("services", {"list", "watch", "update"}),
        ("poddisruptionbudgets", {"list", "watch", "update"}),
        ("leases", {"list", "watch", "patch", "delete"}),
        ("events", {"watch", "update", "delete"}),
    ],
)
def test_what_is_never_asked_is_not_granted(resource: str, never: set[str]) -> None:
    assert verbs(resource)
    assert not verbs(resource) & never


def test_nothing_is_granted_to_the_dashboard() -> None:
    """It asks with its viewers' tokens: whoever takes it over has what they send, and no more."""
    written = (TEMPLATES / "dashboard.yaml").read_text()
    assert set(re.findall(r"^kind: (\w+)$", written, re.MULTILINE)) == {
        *("ServiceAccount", "Deployment", "Service", "NetworkPolicy"),
    }
    others = [path for path in TEMPLATES.iterdir() if path.name != "dashboard.yaml"]
    assert not [path for path in others if "rl-operator-dashboard\n" in path.read_text()]
    assert written.count("automountServiceAccountToken: false") == 2


def test_the_page_of_installation_names_every_right_for_the_whole_cluster() -> None:
    manifests = (TEMPLATES / "rbac.yaml").read_text().split("\n---\n")
    cluster_roles = [each for each in manifests if "\nkind: ClusterRole\n" in each]
    lists = re.findall(r"  resources: \[(.*)\]", "\n".join(cluster_roles))
    resources = {resource for each in lists for resource in each.split(", ")}
    assert {"nodes", "tokenreviews", "subjectaccessreviews"} <= resources
    page = TEMPLATES.parents[2] / "docs" / "getting-started" / "install.md"
    described = page.read_text().partition("**The operator.**")[2].partition("\n\n")[0]
    assert {each for each in resources if each not in described.lower().replace(" ", "")} == set()
