"""agent-sandbox's own kinds, for API servers of tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from rl_local import versions
from rl_local.build import binaries
from tests.servers import Server, binary, free_port

Raw = dict[str, Any]

FOLDER = "k8s/crds"
VERSION = "v1beta1"
EXTENSIONS = "extensions.agents.x-k8s.io"
PLURALS = {
    "sandboxes": "agents.x-k8s.io",
    **dict.fromkeys(("sandboxtemplates", "sandboxwarmpools", "sandboxclaims"), EXTENSIONS),
}
"""Kinds and their groups."""
NAMES = tuple(f"{plural}.{group}" for plural, group in PLURALS.items())
"""Of the definitions."""


def definitions() -> list[Raw]:
    """The module's CRDs, with the version that we write alone: others need its webhook."""
    module = Path(binaries.module_folder(binaries.AGENT_SANDBOX, versions.AGENT_SANDBOX))
    crds = []
    for plural, group in PLURALS.items():
        text = (module / FOLDER / f"{group}_{plural}.yaml").read_text()
        crd = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        kept = [version for version in crd["spec"]["versions"] if version["name"] == VERSION]
        crd["spec"]["versions"] = [{**version, "storage": True} for version in kept]
        crd["spec"].pop("conversion", None)
        crds.append({key: crd[key] for key in ("apiVersion", "kind", "metadata", "spec")})
    return crds


def write_definitions(path: Path) -> Path:
    """Write them into a file for kubectl."""
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": definitions()}))
    return path


def controller(kubeconfig: Path, *, log: Path) -> Server:
    """agent-sandbox's own controller as a process that is not started yet.

    It serves no webhook: the kinds have one version.
    """
    probes = free_port()
    command = [
        binary("agent-sandbox-controller"),
        f"--kubeconfig={kubeconfig}",
        "--extensions",
        "--enable-webhook=false",
        "--leader-elect=false",
        "--metrics-bind-address=0",
        f"--health-probe-bind-address=127.0.0.1:{probes}",
    ]
    return Server(command=command, ready_url=f"http://127.0.0.1:{probes}/readyz", log=log)
