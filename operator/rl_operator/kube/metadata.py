"""The metadata of Kubernetes objects, parsed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rl_operator.kube.kinds import RLJOB
from rl_operator.kube.names import APPLIED_ANNOTATION, ATTEMPT_LABEL
from rl_operator.kube.timestamps import parse_time

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """The metadata that the operator uses."""

    namespace: str
    name: str
    uid: str
    generation: int
    resource_version: str
    created_at: float
    deleted_at: float | None
    """Time of the deletion request, seconds since 1970; of a pod, the end of its grace period."""
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    finalizers: tuple[str, ...]
    owner_uid: str
    """Of the controlling owner; empty without one."""
    adopted_run: str = ""
    """``spec.runId`` of a job that continues another job's run; else empty."""

    @property
    def run(self) -> str:
        """ID of the run that a job trains."""
        return self.adopted_run or self.uid

    @property
    def attempt(self) -> int:
        """Number of the trainer's attempt that it belongs to; 0 without a valid label."""
        label = self.labels.get(ATTEMPT_LABEL, "")
        return int(label) if label.isdecimal() else 0

    @classmethod
    def parse(cls, raw: Raw) -> Meta:
        """Parse an object's metadata."""
        meta = raw["metadata"]
        adopted = raw["spec"].get("runId", "") if raw.get("kind") == RLJOB.name else ""
        owners = [
            owner_reference
            for owner_reference in meta.get("ownerReferences", [])
            if owner_reference.get("controller")
        ]
        return cls(
            namespace=meta["namespace"],
            name=meta["name"],
            uid=meta["uid"],
            generation=meta.get("generation", 0),
            resource_version=meta["resourceVersion"],
            created_at=parse_time(meta["creationTimestamp"]) or 0.0,
            deleted_at=parse_time(meta.get("deletionTimestamp")),
            labels=meta.get("labels", {}),
            annotations=meta.get("annotations", {}),
            finalizers=tuple(meta.get("finalizers", ())),
            owner_uid=owners[0]["uid"] if owners else "",
            adopted_run=adopted,
        )

    @property
    def applied(self) -> str:
        """Digest of the manifest that the operator applied last; empty if it never did."""
        return self.annotations.get(APPLIED_ANNOTATION, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """An object that we own, or that has a name that we need."""

    kind: str
    meta: Meta
    raw: Raw

    @property
    def declared(self) -> tuple[object, ...]:
        """Changes whenever metadata or spec change; not with the status."""
        meta = self.meta
        marks = (*sorted(meta.labels.items()), *sorted(meta.annotations.items()))
        return (
            self.kind,
            meta.name,
            meta.uid,
            meta.generation,
            meta.deleted_at,
            meta.owner_uid,
            marks,
        )
