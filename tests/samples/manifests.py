"""Valid manifests for tests: say only what matters."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

from rl_contracts.spec.resources import API_VERSION

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(
    path
    for folder in ("", "capacity", "gsm8k")
    for path in (ROOT / "examples" / folder).glob("*.yaml")
)
"""Files of the examples with whole manifests of jobs and pools."""
JOB: dict[str, Any] = {
    "apiVersion": API_VERSION,
    "kind": "RLJob",
    "metadata": {"name": "job", "namespace": "default"},
    "spec": {
        "model": {"uri": "s3://rl-data/models/arithmetic"},
        "data": {
            "train": [{"name": "train", "uri": "s3://rl-data/datasets/arithmetic/train.jsonl"}],
            "validation": [{"name": "test", "uri": "s3://rl-data/datasets/arithmetic/test.jsonl"}],
        },
        "reward": {"scorers": [{"kind": "ExactMatch"}]},
        "training": {
            "steps": 60,
            "precision": "FP32",
            "evaluation": {"everySteps": 30, "temperatures": [1.0, 0.7]},
        },
        "samplers": [{"name": "main", "template": {"autoscaling": {"minReplicas": 2}}}],
    },
}


def documents(text: str) -> list[Any]:
    """The documents of a YAML file that hold something, by the fast loader if it is there."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [document for document in yaml.load_all(text, Loader=loader) if document]


def a_job(name: str = "job", *, namespace: str = "default", **sections: Any) -> dict[str, Any]:
    """A valid RLJob, some sections of its spec replaced."""
    manifest = copy.deepcopy(JOB)
    manifest["metadata"] |= {"name": name, "namespace": namespace}
    manifest["spec"] |= sections
    return manifest


def changed(path: str, value: Any) -> dict[str, Any]:
    """The valid job with one field set, or taken away by an Ellipsis."""
    manifest = copy.deepcopy(a_job())
    *folders, last = path.split(".")
    place: Any = manifest
    for folder in folders:
        place = place[int(folder)] if isinstance(place, list) else place.setdefault(folder, {})
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return manifest
