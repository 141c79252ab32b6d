"""CRDs and the reference page of fields, from the spec models.

``python -m rl_contracts.spec.schema.crd FOLDER…`` writes the CRDs into folders, and with
``--reference FILE`` the page; with ``--check`` it compares them with what is there.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import yaml

from rl_contracts.spec.resources import GROUP, VERSION, RLJob, SamplerPool
from rl_contracts.spec.schema import json_schema, reference
from rl_contracts.spec.schema.structural import Schema, as_reported, structural

# An uninstalled chart must not take every run of the cluster with it.
KEEP = {"helm.sh/resource-policy": "keep"}
# The operator alone writes a status, all of it at once: who owns which of its fields would cost the
# API server a quarter of each write.
WHOLE = {"x-kubernetes-map-type": "atomic"}
FIRST = ("description", "type")
HEADER = "# Generated from contracts/rl_contracts/spec by `make generate`; do not edit.\n"


def _column(name: str, kind: str, path: str, text: str, *, wide: bool = False) -> Schema:
    column: Schema = {"name": name, "type": kind, "jsonPath": path, "description": text}
    return {**column, "priority": 1} if wide else column


READY_REASON = ".status.conditions[?(@.type=='Ready')].reason"
RLJOB_COLUMNS = [
    _column("Phase", "string", ".status.phase", "State in one word."),
    _column("Trainer", "string", ".status.trainer.summary", "Ready and wanted trainer pods."),
    _column("Samplers", "string", ".status.samplers.summary", "Ready and wanted sampler pods."),
    _column("Step", "integer", ".status.progress.step", "Finished training steps."),
    _column("Reward", "number", ".status.progress.reward", "Mean reward of the last step."),
    _column("Policy", "integer", ".status.weights.version", "Newest published policy version."),
    _column("Age", "date", ".metadata.creationTimestamp", "Time since the creation."),
    _column("Steps", "integer", ".status.progress.steps", "Training steps in total.", wide=True),
    _column(
        "Accuracy", "number", ".status.progress.accuracy", "Of the last evaluation.", wide=True
    ),
    _column("Lag", "integer", ".status.weights.lag", "Steps that samplers are behind.", wide=True),
    _column("Attempt", "integer", ".status.attempt", "Number of the trainer attempt.", wide=True),
    _column(
        "Restarts", "integer", ".status.trainer.restarts", "Trainer starts, less one.", wide=True
    ),
    _column("GPUs", "integer", ".status.resources.gpus", "GPUs of all pods.", wide=True),
    _column("Queue", "string", ".spec.scheduling.queueName", "Kueue LocalQueue.", wide=True),
    _column("Reason", "string", READY_REASON, "Why Ready is what it is.", wide=True),
    # The last: a sentence.
    _column(
        "Activity", "string", ".status.progress.phase", "What the trainer is doing.", wide=True
    ),
]
RLJOB_SELECTABLE = (".status.phase", ".spec.scheduling.queueName")
"""For ``kubectl get --field-selector``."""
POOL_COLUMNS = [
    _column("Job", "string", ".spec.job", "RLJob that owns the pool."),
    _column("Serves", "string", ".status.assignment.job", "RLJob that a shared pool serves."),
    _column("Desired", "integer", ".spec.replicas", "Wanted pods."),
    _column("Ready", "integer", ".status.ready", "Ready pods."),
    _column("Serving", "integer", ".status.serving", "Pods with a policy new enough."),
    _column("Policy", "integer", ".status.version", "Oldest policy version served."),
    _column("Lag", "integer", ".status.lag", "Steps that the oldest one is behind."),
    _column("Reason", "string", READY_REASON, "Why Ready is what it is."),
    _column("Age", "date", ".metadata.creationTimestamp", "Time since the creation."),
    _column("Mode", "string", ".spec.template.autoscaling.mode", "Of autoscaling.", wide=True),
    _column("Waiting", "integer", ".status.waitingJobs", "Jobs that wait for it.", wide=True),
]


def _crd(*, kind: str, plural: str, short: str, schema: Schema, version: Schema) -> Schema:
    status = as_reported(schema["properties"]["status"])
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
            "selectableFields": [{"jsonPath": path} for path in RLJOB_SELECTABLE],
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
    """File name to text, of each CRD."""
    return {
        f"{crd['metadata']['name']}.yaml": HEADER + _text(crd) for crd in (rljob(), samplerpool())
    }


class _Dumper(yaml.SafeDumper):
    """Writes every value in full, without anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        """No value refers to another."""
        return True


def _text(crd: Schema) -> str:
    return yaml.dump(_ordered(crd), Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=100)


def _ordered(node: Any) -> Any:
    """The same with what a field is and means before everything else."""
    if isinstance(node, list):
        return [_ordered(item) for item in node]
    if not isinstance(node, dict):
        return node
    first = {key: node[key] for key in FIRST if isinstance(node.get(key), str)}
    return {key: _ordered(value) for key, value in {**first, **node}.items()}


def main() -> None:
    """Write what is generated from the models, or compare it with what is there."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folders", type=Path, nargs="+", help="folders of the CRDs")
    parser.add_argument("--reference", type=Path, help="the page of all fields, Markdown")
    parser.add_argument("--json-schemas", type=Path, help="folder of JSON Schemas of the kinds")
    parser.add_argument("--check", action="store_true", help="write nothing; fail on a difference")
    arguments = parser.parse_args()
    wanted = {folder / name: text for folder in arguments.folders for name, text in files().items()}
    if arguments.reference is not None:
        wanted[arguments.reference] = reference.page()
    if arguments.json_schemas is not None:
        schemas = json_schema.files([rljob(), samplerpool()])
        wanted |= {arguments.json_schemas / name: text for name, text in schemas.items()}
    for path, text in wanted.items():
        if not arguments.check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            raise SystemExit(f"{path} differs from the models: run `make generate`")


if __name__ == "__main__":
    main()
