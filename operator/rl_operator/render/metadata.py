"""Metadata that all our children share."""

from __future__ import annotations

from typing import Any

from rl_operator.kube import names
from rl_operator.kube.kinds import RLJOB, SAMPLER_POOL, Kind
from rl_operator.kube.metadata import Meta

Manifest = dict[str, Any]


def labels(
    *, job: str, run: str, component: str = "", pool: str = "", attempt: int = 0
) -> dict[str, str]:
    """Labels of a child; those that do not apply are left out."""
    found = {
        **names.PART_OF,
        names.JOB_LABEL: job,
        names.RUN_LABEL: run,
        names.COMPONENT_LABEL: component,
        names.POOL_LABEL: pool,
        names.ATTEMPT_LABEL: str(attempt) if attempt else "",
    }
    return {key: value for key, value in found.items() if value}


def owned_by(owner: Meta, kind: Kind, *, goes_first: bool = True) -> list[Manifest]:
    """The owner references of a child: it goes when its owner goes.

    Args:
        owner: whose child it is.
        kind: of the owner.
        goes_first: a foreground deletion of the owner takes it before the owner.
    """
    assert kind in (RLJOB, SAMPLER_POOL)
    return [
        {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "name": owner.name,
            "uid": owner.uid,
            "controller": True,
            "blockOwnerDeletion": goes_first,
        }
    ]


def stamped(manifest: Manifest) -> Manifest:
    """The manifest with its own digest among its annotations, by which a change is seen."""
    metadata = manifest["metadata"]
    annotations = {
        **metadata.get("annotations", {}),
        names.APPLIED_ANNOTATION: names.digest(manifest),
    }
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}
