"""Manifests for the cluster's tests: the example, shortened."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE: dict[str, Any] = yaml.safe_load((ROOT / "examples" / "arithmetic.yaml").read_text())


def job(name: str, **changes: Any) -> dict[str, Any]:
    """The example under another name.

    Args:
        name: of the job.
        changes: values by path below ``spec``, with ``__`` between the keys; None removes a key.
            A number is an index, e.g. ``samplers__0__template__autoscaling__minReplicas=1``.
    """
    manifest = copy.deepcopy(EXAMPLE)
    manifest["metadata"]["name"] = name
    for path, value in changes.items():
        *parents, last = path.split("__")
        section: Any = manifest["spec"]
        for key in parents:
            section = (
                section[int(key)] if isinstance(section, list) else section.setdefault(key, {})
            )
        if value is None:
            section.pop(last, None)
        else:
            section[int(last) if isinstance(section, list) else last] = value
    return manifest


def short_job(name: str, **changes: Any) -> dict[str, Any]:
    """A job of a few small steps with one sampler and without evaluation."""
    small = {
        "training__steps": 4,
        "training__promptsPerStep": 4,
        "training__checkpoint__everySteps": 2,
        "training__evaluation": {"beforeTraining": False, "afterTraining": False},
        "samplers__0__template__autoscaling__minReplicas": 1,
        "lifecycle__restartBackoffSeconds": 1,
    }
    return job(name, **{**small, **changes})
