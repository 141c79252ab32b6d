"""CRDs from the spec models: ``python -m rl_contracts.spec.schema.crd FOLDER`` writes them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rl_contracts.spec.resources import GROUP, VERSION, RLJob, SamplerPool
from rl_contracts.spec.schema.structural import Schema, as_written_by_us, structural

# An uninstalled chart must not take every run of the cluster with it.
KEEP = {"helm.sh/resource-policy": "keep"}
# The operator alone writes a status, all of it at once: who owns which of its fields would cost the
# API server a quarter of each write.
WHOLE = {"x-kubernetes-map-type": "atomic"}
LINE = 8000
MARGIN = " "
"""Of all lines but the outermost, however deep: each deeper one would cost bytes."""


def _column(name: str, kind: str, path: str, priority: int = 0) -> Schema:
    column: Schema = {"name": name, "type": kind, "jsonPath": path}
    return {**column, "priority": priority} if priority else column


RLJOB_COLUMNS = [
    _column("Phase", "string", ".status.phase"),
    _column("Trainer", "string", ".status.trainer.summary"),
    _column("Samplers", "string", ".status.samplers.summary"),
    _column("Step", "integer", ".status.progress.step"),
    _column("Reward", "number", ".status.progress.reward"),
    _column("Policy", "integer", ".status.weights.version"),
    _column("Age", "date", ".metadata.creationTimestamp"),
    _column("Steps", "integer", ".status.progress.steps", 1),
    _column("Lag", "integer", ".status.weights.lag", 1),
    _column("Restarts", "integer", ".status.trainer.restarts", 1),
    _column("Attempt", "integer", ".status.attempt", 1),
    _column("Reason", "string", ".status.conditions[?(@.type=='Ready')].reason", 1),
    _column("Doing", "string", ".status.progress.phase", 1),
    _column("Queue", "string", ".spec.scheduling.queueName", 1),
    _column("GPUs", "integer", ".status.resources.gpus", 1),
]
RLJOB_SELECTABLE = (".status.phase", ".spec.scheduling.queueName")
"""For ``kubectl get --field-selector``."""
POOL_COLUMNS = [
    _column("Job", "string", ".spec.job"),
    _column("Serves", "string", ".status.assignment.job"),
    _column("Desired", "integer", ".spec.replicas"),
    _column("Ready", "integer", ".status.ready"),
    _column("Serving", "integer", ".status.serving"),
    _column("Policy", "integer", ".status.version"),
    _column("Lag", "integer", ".status.lag"),
    _column("Reason", "string", ".status.conditions[?(@.type=='Ready')].reason"),
    _column("Age", "date", ".metadata.creationTimestamp"),
    _column("Mode", "string", ".spec.template.autoscaling.mode", 1),
    _column("Waiting", "integer", ".status.waitingJobs", 1),
]


def _crd(*, kind: str, plural: str, short: str, schema: Schema, version: Schema) -> Schema:
    status = as_written_by_us(schema["properties"]["status"])
    # GitOps tools take an object without observedGeneration for finished: it starts at -1.
    schema["properties"] = {
        "metadata": {"type": "object"},
        "spec": schema["properties"]["spec"],
        "status": {**status, **WHOLE, "default": {"observedGeneration": -1}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}", "annotations": KEEP},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                "categories": ["all", "rl"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    **version,
                }
            ],
        },
    }


def rljob() -> Schema:
    """The RLJob CRD."""
    return _crd(
        kind="RLJob",
        plural="rljobs",
        short="rlj",
        schema=structural(RLJob),
        version={
            "subresources": {"status": {}},
            "selectableFields": [{"jsonPath": one} for one in RLJOB_SELECTABLE],
            "additionalPrinterColumns": RLJOB_COLUMNS,
        },
    )


def samplerpool() -> Schema:
    """The SamplerPool CRD, with ``/scale``."""
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    return _crd(
        kind="SamplerPool",
        plural="samplerpools",
        short="spool",
        schema=structural(SamplerPool),
        version={
            "subresources": {"status": {}, "scale": scale},
            "additionalPrinterColumns": POOL_COLUMNS,
        },
    )


def files() -> dict[str, str]:
    """File name to text. JSON is YAML: it needs no writer of ours and keeps the order of fields."""
    header = "# Generated from contracts/rl_contracts/spec by `make generate`; do not edit.\n"
    return {
        f"{crd['metadata']['name']}.yaml": header + _text(crd) + "\n"
        for crd in (rljob(), samplerpool())
    }


def _text(node: Any, margin: str = "") -> str:
    """JSON with what is short on one line: half the size of an indented file."""
    line = json.dumps(node, separators=(",", ":"), ensure_ascii=False)
    if len(margin) + len(line) <= LINE or not isinstance(node, dict | list):
        return line
    if isinstance(node, dict):
        parts = [f"{json.dumps(key)}:{_text(one, MARGIN)}" for key, one in node.items()]
        opening, closing = "{", "}"
    else:
        parts = [_text(one, MARGIN) for one in node]
        opening, closing = "[", "]"
    inner = ",".join(f"\n{MARGIN}{part}" for part in parts)
    return f"{opening}{inner}\n{margin}{closing}"


def main() -> None:
    """Write the CRDs into a folder, or with ``--check`` compare them with what is there."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    for folder in arguments.folders:
        for name, text in files().items():
            path = folder / name
            if not arguments.check:
                path.write_text(text)
            elif not path.exists() or path.read_text() != text:
                raise SystemExit(f"{path} is not what the models say: run `make generate`")


if __name__ == "__main__":
    main()
