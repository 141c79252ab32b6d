"""What we write into a Workload itself: the nodes it was admitted to, or why it cannot be used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rl_contracts.pod_overlay import CONTAINER_LISTS
from rl_operator.kube import names
from rl_operator.kube.conditions import Stall
from rl_operator.kube.metadata import Raw
from rl_operator.kube.names import (
    FLAVORS_ANNOTATION,
    UNUSABLE_ANNOTATION,
    UNUSABLE_DEMAND_ANNOTATION,
)
from rl_operator.kueue.admission import Workload

Manifest = dict[str, Any]
SEPARATOR = ": "


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavor:
    """The part of a ResourceFlavor that concerns pods."""

    node_labels: Mapping[str, str]
    tolerations: tuple[Raw, ...] = ()

    @classmethod
    def parse(cls, spec: Raw) -> Flavor:
        """Read the spec of a ResourceFlavor."""
        return cls(
            node_labels=spec.get("nodeLabels", {}), tolerations=tuple(spec.get("tolerations", ()))
        )

    @property
    def spec(self) -> Raw:
        """As it is read."""
        return {"nodeLabels": dict(self.node_labels), "tolerations": list(self.tolerations)}


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """Why we have taken a Workload out of its queue."""

    stall: Stall
    asked: str
    """Digest of what its job asked for then; empty: not known, as of a release without it."""


def flavors_of(workload: Workload, *, demand: Raw | None = None) -> list[str]:
    """Names of the flavors of an admission, or only of those pod sets that ``demand`` has."""
    sets = set(workload.assignments)
    if demand is not None:
        sets &= {pod_set["name"] for pod_set in demand["spec"]["podSets"]}
    assigned = (each for name, each in workload.assignments.items() if name in sets)
    return sorted({name for each in assigned for name in each.flavors})


def recorded(workload: Workload) -> dict[str, Flavor | None] | None:
    """The flavors of an admission as they were when it came; None: they are not recorded.

    Pods that are created later must not differ, whatever has become of the flavors. One that did
    not exist, as of a group that was removed before, is None.
    """
    try:
        record = json.loads(workload.meta.annotations.get(FLAVORS_ANNOTATION, "{}"))
        flavors = {
            name: Flavor.parse(spec) if spec is not None else None
            for name, spec in record["flavors"].items()
        }
        same = record["admitted"] == workload.since("Admitted")
    except (ValueError, KeyError, TypeError, AttributeError):  # somebody has edited it
        return None
    return flavors if same and sorted(flavors) == flavors_of(workload) else None


def record(workload: Workload, flavors: Mapping[str, Flavor | None]) -> Manifest:
    """The change that records the flavors of an admission, which can be used."""
    of_admission = {
        "admitted": workload.since("Admitted"),
        "flavors": {name: flavor.spec if flavor else None for name, flavor in flavors.items()},
    }
    usable = {UNUSABLE_ANNOTATION: None, UNUSABLE_DEMAND_ANNOTATION: None}
    return _change(workload, {FLAVORS_ANNOTATION: json.dumps(of_admission), **usable})


def asked(demand: Raw) -> str:
    """Digest of the pods that a job asks its queue for, by its Workload as it is rendered now.

    Images do not decide where pods fit, and an upgrade of the operator changes them.
    """
    return names.digest([_without_images(pod_set) for pod_set in demand["spec"]["podSets"]])


def _without_images(pod_set: Raw) -> Raw:
    pod = pod_set["template"]["spec"]
    containers = {
        key: [{**container, "image": ""} for container in pod.get(key, [])]
        for key in CONTAINER_LISTS
    }
    return {**pod_set, "template": {"spec": {**pod, **containers}}}


def deactivated(workload: Workload, stall: Stall, demand: Raw) -> Manifest:
    """The change that takes a Workload out of its queue and says why, and for what demand.

    Deleted, it would be made and admitted in the same way again.
    """
    why = {
        UNUSABLE_ANNOTATION: f"{stall.reason}{SEPARATOR}{stall.message}",
        UNUSABLE_DEMAND_ANNOTATION: asked(demand),
    }
    return _change(workload, why) | {"spec": {"active": False}}


def given_up(workload: Workload) -> GivenUp | None:
    """Why we have taken a Workload out of its queue; None: we have not."""
    if workload.active or workload.meta.deleted_at is not None:
        return None
    annotations = workload.meta.annotations
    reason, _, message = annotations.get(UNUSABLE_ANNOTATION, "").partition(SEPARATOR)
    if not reason or not message:  # none, or somebody has edited it
        return None
    stall = Stall(reason=reason, message=message)
    return GivenUp(stall=stall, asked=annotations.get(UNUSABLE_DEMAND_ANNOTATION, ""))


def _change(workload: Workload, annotations: Mapping[str, str | None]) -> Manifest:
    """A change of the version that was observed; None removes an annotation."""
    meta = workload.meta
    metadata = {
        "name": meta.name,
        "namespace": meta.namespace,
        "resourceVersion": meta.resource_version,
        "annotations": dict(annotations),
    }
    return {"metadata": metadata}
