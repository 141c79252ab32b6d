"""Metadata of all children: labels, owner references, the digest of the manifest."""

from __future__ import annotations

from typing import Any

from rl_operator.kube import names
from rl_operator.kube.kinds import RLJOB, SAMPLER_POOL, Kind
from rl_operator.kube.metadata import Meta

Manifest = dict[str, Any]


def labels(
    *, job: str, run: str, component: str = "", pool: str = "", attempt: int = 0
) -> dict[str, str]:
    """Labels of a child; empty ones are left out."""
    values = {
        **names.PART_OF,
        names.JOB_LABEL: job,
        names.RUN_LABEL: run,
        names.COMPONENT_LABEL: component,
        names.POOL_LABEL: pool,
        names.ATTEMPT_LABEL: str(attempt) if attempt else "",
    }
    return {key: value for key, value in values.items() if value}


def owned_by(owner: Meta, kind: Kind, *, goes_first: bool = True) -> list[Manifest]:
    """The owner references of a child, which is deleted with its owner.

    Args:
        owner: metadata of the owner.
        kind: of the owner.
        goes_first: a foreground deletion of the owner waits for the child.
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
    """The manifest with its own digest as annotation, by which changes are detected."""
    metadata = manifest["metadata"]
    annotations = {
        **metadata.get("annotations", {}),
        names.APPLIED_ANNOTATION: names.digest(manifest),
    }
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}
