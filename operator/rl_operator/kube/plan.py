"""What has to be done so that the declared objects are there: nothing when they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_operator.kube.kinds import WRITTEN, Kind
from rl_operator.kube.metadata import Child
from rl_operator.kube.names import APPLIED_ANNOTATION
from rl_operator.kube.subset_diff import holds

Manifest = dict[str, Any]
KINDS = {kind.name: kind for kind in WRITTEN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """An object that ought to be there."""

    manifest: Manifest
    at_first: Manifest = field(default_factory=dict)
    """Fields of the spec that it is created with, and that are others' from then on."""
    keep_as_created: bool = False
    """Never changed once it is there."""

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
    """Make an object where there is none of its name."""

    kind: Kind
    manifest: Manifest

    def __str__(self) -> str:
        return f"create {self.kind.name} {self.manifest['metadata']['name']}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    """Make an object that is there what its manifest says."""

    kind: Kind
    manifest: Manifest

    def __str__(self) -> str:
        return f"apply {self.kind.name} {self.manifest['metadata']['name']}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Delete exactly this object."""

    kind: Kind
    name: str
    uid: str

    def __str__(self) -> str:
        return f"delete {self.kind.name} {self.name}"


Action = Create | Apply | Delete


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Another owner has an object under a name that we need."""

    kind: str
    name: str
    going: bool
    """It is being deleted: waiting helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Actions in their order, and the names that are taken."""

    actions: tuple[Action, ...] = ()
    conflicts: tuple[Conflict, ...] = ()


def plan(
    wanted: Sequence[Wanted],
    unwanted: Iterable[Child],
    *,
    observed: Mapping[tuple[str, str], Child],
    owner_uid: str,
) -> Plan:
    """Compare what ought to be there with what is.

    Args:
        wanted: in the order in which they are to be made.
        unwanted: our own objects that ought to go.
        observed: by kind and name.
        owner_uid: who controls the wanted objects.
    """
    actions: list[Action] = []
    conflicts: list[Conflict] = []
    for one in wanted:
        there = observed.get(one.reference)
        if there is None:
            actions.append(_creation(one))
        elif there.meta.owner_uid != owner_uid:
            going = there.meta.deleted_at is not None or _was_ours(there, one)
            conflicts.append(Conflict(kind=there.kind, name=there.meta.name, going=going))
        elif not one.keep_as_created and there.meta.deleted_at is None and _differs(one, there):
            actions.append(_application(one, there.meta.resource_version))
    for child in unwanted:
        if child.meta.owner_uid == owner_uid and child.meta.deleted_at is None:
            kind, meta = KINDS[child.kind], child.meta
            actions.append(Delete(kind=kind, name=meta.name, uid=meta.uid))
    return Plan(actions=tuple(actions), conflicts=tuple(conflicts))


def _creation(wanted: Wanted) -> Create:
    """What was not seen is made only if it is not there: nobody else's object is written to."""
    manifest = wanted.manifest
    if wanted.at_first:
        manifest = manifest | {"spec": manifest["spec"] | wanted.at_first}
    return Create(kind=wanted.kind, manifest=manifest)


def _application(wanted: Wanted, version: str) -> Apply:
    """To an object that is there only as it was seen: a paused leader must not undo."""
    metadata = wanted.manifest["metadata"] | {"resourceVersion": version}
    manifest = wanted.manifest | {"metadata": metadata}
    return Apply(kind=wanted.kind, manifest=manifest)


def _differs(wanted: Wanted, there: Child) -> bool:
    digest = wanted.manifest["metadata"]["annotations"][APPLIED_ANNOTATION]
    return there.meta.applied != digest or not holds(there.raw, wanted.manifest)


def _was_ours(there: Child, wanted: Wanted) -> bool:
    """Whether an earlier owner of the same name has it: the garbage collector is about to take it.

    Another owner keeps it: the pools of a job ``a-b`` and a group ``c``, and of ``a`` and ``b-c``,
    have the same name.
    """
    if not (there.meta.applied and there.meta.owner_uid):
        return False
    return _owner_name(there.raw) == _owner_name(wanted.manifest)


def _owner_name(manifest: Mapping[str, Any]) -> str:
    owners = manifest["metadata"].get("ownerReferences") or []
    return next((str(owner["name"]) for owner in owners if owner.get("controller")), "")
