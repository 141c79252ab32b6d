"""What we write into a Workload itself: why its admission cannot be used."""

from __future__ import annotations

from typing import Any

from rl_operator.kube.conditions import Stall
from rl_operator.kube.names import UNUSABLE_ANNOTATION
from rl_operator.kueue.admission import Workload

Manifest = dict[str, Any]
SEPARATOR = ": "


def deactivated(workload: Workload, stall: Stall) -> Manifest:
    """The change that takes a Workload out of its queue and says why.

    Deleted, it would be made and admitted in the same way again.
    """
    why = {UNUSABLE_ANNOTATION: f"{stall.reason}{SEPARATOR}{stall.message}"}
    return _change(workload, why) | {"spec": {"active": False}}


def unusable(workload: Workload) -> Stall | None:
    """Why we have taken a Workload out of its queue; None: we have not."""
    reason, _, message = workload.meta.annotations.get(UNUSABLE_ANNOTATION, "").partition(SEPARATOR)
    return Stall(reason=reason, message=message) if reason and not workload.active else None


def _change(workload: Workload, annotations: dict[str, str]) -> Manifest:
    """A change of the version that was observed."""
    meta = workload.meta
    metadata = {
        "name": meta.name,
        "namespace": meta.namespace,
        "resourceVersion": meta.resource_version,
        "annotations": annotations,
    }
    return {"metadata": metadata}
