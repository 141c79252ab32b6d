"""Names in the objects of the chart, as Helm renders them: of releases, and as users give them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.samples.manifests import documents
from tests.servers import ROOT, binary
from tests.waiting import HUNG_SECONDS

EVERYTHING = ("image.registry=ghcr.io/you/rl-operator", "kueue.enabled=true")


def rendered(release: str, namespace: str, *values: str) -> list[dict[str, Any]]:
    """The objects of a release in a namespace."""
    command = [binary("helm"), "template", release, str(ROOT / "charts/rl-operator")]
    command += [f"--namespace={namespace}", "--kube-version=1.34.0"]
    command += [f"--set={value}" for value in (*EVERYTHING, *values)]
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
