"""The example for KEDA fits KEDA's own schemas; tests/contract has what its query counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_local import versions
from rl_local.build import binaries
from tests.kube.apiserver import ApiServer

FOLDER = "config/crd/bases"
PLURALS = ("scaledobjects", "triggerauthentications")
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "autoscaling" / "keda.yaml"


@pytest.fixture
def with_keda(apiserver: ApiServer) -> Iterator[ApiServer]:
    module = binaries.module_folder(binaries.KEDA, versions.KEDA)
    for plural in PLURALS:
        apiserver.install(module / FOLDER / f"keda.sh_{plural}.yaml")
    yield apiserver
    apiserver.kubectl("delete", "crd", *(f"{plural}.keda.sh" for plural in PLURALS))


def test_keda_accepts_the_example_unchanged(with_keda: ApiServer) -> None:
    done = with_keda.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", str(EXAMPLE))
    assert [line.rpartition(" (")[0] for line in done.stdout.splitlines()] == [
        "triggerauthentication.keda.sh/rl-operator-stores created",
        "scaledobject.keda.sh/arithmetic-main created",
    ]


def test_keda_refuses_a_misspelt_field(with_keda: ApiServer) -> None:
    """The test before this one can fail."""
    text = EXAMPLE.read_text().replace("maxReplicaCount", "maxReplicas")
    done = with_keda.kubectl(
        "apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text, check=False
    )
    assert 'unknown field "spec.maxReplicas"' in done.stderr
