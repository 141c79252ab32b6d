"""What every object of Kubernetes says of itself, parsed once."""

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
    """The metadata that matter."""

    namespace: str
    name: str
    uid: str
    generation: int
    resource_version: str
    created_at: float
    deleted_at: float | None
    """When deletion was asked for; of a pod, when its grace period is over."""
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    finalizers: tuple[str, ...]
    owner_uid: str
    """Of the controlling owner; empty without one."""
    adopted_run: str = ""
    """Of a job whose ``spec.runId`` names a run; empty: its run is its own."""

    @property
    def run(self) -> str:
        """Of a job: the run that it works on."""
        return self.adopted_run or self.uid

    @property
    def attempt(self) -> int:
        """The trainer's attempt that it is of; 0: of none, whatever others have written there."""
        told = self.labels.get(ATTEMPT_LABEL, "")
        return int(told) if told.isdecimal() else 0

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
        """Digest of the manifest that the operator applied last; empty when it never did."""
        return self.annotations.get(APPLIED_ANNOTATION, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """An object that we own, or that has a name we want."""

    kind: str
    meta: Meta
    raw: Raw

    @property
    def declared(self) -> tuple[object, ...]:
        """Changes whenever anything that one may declare of it does; a status does not count."""
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
