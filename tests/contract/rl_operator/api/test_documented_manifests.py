"""Every manifest in the README and the pages is accepted as it is written."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.kube.apiserver import ApiServer
from tests.unit.docs.pages import PAGES, ROOT, blocks

LEAST = 4


def manifests() -> dict[str, dict[str, Any]]:
    """Objects in fenced YAML that name their ``apiVersion``, by page and name."""
    manifests: dict[str, dict[str, Any]] = {}
    for page in PAGES:
        for block in (*blocks(page, "yaml"), *blocks(page, "yml")):
            for document in yaml.safe_load_all(block):
                if isinstance(document, dict) and "apiVersion" in document:
                    name = document["metadata"]["name"]
                    key = f"{page.relative_to(ROOT)}: {document['kind']} {name}"
                    assert key not in manifests, f"two manifests are {key}"
                    manifests[key] = document
    return manifests


MANIFESTS = manifests()


def test_the_pages_have_manifests() -> None:
    assert len(MANIFESTS) >= LEAST


@pytest.mark.parametrize("manifest", MANIFESTS.values(), ids=MANIFESTS.keys())
def test_a_documented_manifest_passes_a_server_dry_run(
    apiserver: ApiServer, manifest: dict[str, Any]
) -> None:
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": manifest["metadata"]["namespace"]},
    }
    apiserver.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(namespace))
    options = ("apply", "--dry-run=server", "--validate=strict", "-f", "-")
    apiserver.kubectl(*options, stdin=yaml.safe_dump(manifest))
