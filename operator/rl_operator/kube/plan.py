"""Compares the objects that should exist with those that do: the actions that are left to take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_operator.kube.kinds import PYTORCH_JOB, SAMPLER_POOL, WORKLOAD, WRITTEN, Kind
from rl_operator.kube.metadata import Child
from rl_operator.kube.names import APPLIED_ANNOTATION
from rl_operator.kube.subset_diff import contains
from rl_operator.kube.trainer_state import state_of

Manifest = dict[str, Any]
KINDS = {kind.name: kind for kind in WRITTEN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """An object that should exist."""

    manifest: Manifest
    initial_spec: Manifest = field(default_factory=dict)
    """More of the spec with which the object is created, such as ``replicas``: applies leave it
    out, so that it belongs to others from then on."""
    immutable: bool = False
    """Created once and never changed."""

    @property
    def reference(self) -> tuple[str, str]:
        """Kind and name."""
        return self.manifest["kind"], self.manifest["metadata"]["name"]

    @property
    def kind(self) -> Kind:
        """Its kind."""
        return KINDS[self.manifest["kind"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Create an object; no object of its kind and name was seen."""

    kind: Kind
    manifest: Manifest

    def __str__(self) -> str:
        return f"create {self.kind.name} {self.manifest['metadata']['name']}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    """Change an existing object to what its manifest says."""

    kind: Kind
    manifest: Manifest

    @property
    def stops(self) -> bool:
        """Whether it only takes pods away: it relies on no other object."""
        return self.kind == SAMPLER_POOL and self.manifest["spec"].get("admitted") == 0

    def __str__(self) -> str:
        return f"apply {self.kind.name} {self.manifest['metadata']['name']}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Delete exactly this object."""

    kind: Kind
    name: str
    uid: str
    stops: bool = False
    """Whether it is a trainer that has not ended."""

    def __str__(self) -> str:
        return f"delete {self.kind.name} {self.name}"


Action = Create | Apply | Delete


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """An object of another owner has a name that we need."""

    kind: str
    name: str
    deleting: bool
    """The object is being deleted, so waiting helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Actions in their order, and the names that others have taken."""

    actions: tuple[Action, ...] = ()
    conflicts: tuple[Conflict, ...] = ()


def plan(
    wanted: Sequence[Wanted],
    unwanted: Iterable[Child],
    *,
    observed: Mapping[tuple[str, str], Child],
    owner_uid: str,
) -> Plan:
    """Compare the objects that should exist with those that do.

    What stops pods and gives back their quota comes first. Other deletions come last: a pool stays
    until the one that replaces it exists, and no deletion of an earlier attempt's trainer that
    fails keeps the next attempt from being made.

    Args:
        wanted: in the order in which they are created.
        unwanted: our own objects that should be deleted.
        observed: by kind and name.
        owner_uid: uid of the controller of the wanted objects.
    """
    actions: list[Action] = []
    conflicts: list[Conflict] = []
    for each in wanted:
        existing = observed.get(each.reference)
        if existing is None:
            actions.append(_creation(each))
        elif existing.meta.owner_uid != owner_uid:
            deleting = existing.meta.deleted_at is not None or _was_ours(existing, each)
            conflicts.append(
                Conflict(kind=existing.kind, name=existing.meta.name, deleting=deleting)
            )
        elif existing.meta.deleted_at is None and _differs(each, existing):
            actions.append(_application(each, existing.meta.resource_version))
    for child in unwanted:
        if child.meta.owner_uid == owner_uid and child.meta.deleted_at is None:
            kind, meta = KINDS[child.kind], child.meta
            stops = kind == PYTORCH_JOB and state_of(child.raw) == "Active"
            actions.append(Delete(kind=kind, name=meta.name, uid=meta.uid, stops=stops))
    return Plan(actions=tuple(sorted(actions, key=_turn)), conflicts=tuple(conflicts))


def _turn(action: Action) -> int:
    """The place of an action among those of a plan; equals keep their order."""
    match action:
        case Delete(stops=True):
            return 0
        case Apply(stops=True):
            return 1
        case Delete(kind=kind):
            return 2 if kind == WORKLOAD else 4
        case _:
            return 3


def _creation(wanted: Wanted) -> Create:
    manifest = wanted.manifest
    if wanted.initial_spec:
        manifest = manifest | {"spec": wanted.initial_spec | manifest["spec"]}
    return Create(kind=wanted.kind, manifest=manifest)


def _application(wanted: Wanted, version: str) -> Apply:
    """Conditional on the version that was seen: a paused leader must not undo a newer change."""
    metadata = wanted.manifest["metadata"] | {"resourceVersion": version}
    manifest = wanted.manifest | {"metadata": metadata}
    return Apply(kind=wanted.kind, manifest=manifest)


def _differs(wanted: Wanted, existing: Child) -> bool:
    if wanted.immutable:
        return False
    digest = wanted.manifest["metadata"]["annotations"][APPLIED_ANNOTATION]
    return existing.meta.applied != digest or not contains(existing.raw, wanted.manifest)


def _was_ours(existing: Child, wanted: Wanted) -> bool:
    """Whether an earlier owner of the same name has the object: it is about to be collected.

    An owner of another name keeps it: the pools of job ``a-b`` with group ``c``, and of job ``a``
    with group ``b-c``, have the same name.
    """
    if not (existing.meta.applied and existing.meta.owner_uid):
        return False
    return _owner_name(existing.raw) == _owner_name(wanted.manifest)


def _owner_name(manifest: Mapping[str, Any]) -> str:
    owners = manifest["metadata"].get("ownerReferences") or []
    return next((str(owner["name"]) for owner in owners if owner.get("controller")), "")
