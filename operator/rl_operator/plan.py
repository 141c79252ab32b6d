"""What has to be done so that the declared objects are there: nothing when they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_operator.drift import holds
from rl_operator.kinds import WRITTEN, Kind
from rl_operator.metadata import Child
from rl_operator.names import APPLIED_ANNOTATION, SCALE_MANAGER, SPEC_MANAGER

Manifest = dict[str, Any]
KINDS = {kind.name: kind for kind in WRITTEN}
NO_VERSION = "1"
"""No object ever has it, so that an apply at it creates, or conflicts with one that is there.

etcd begins to count at 1 and gives each object the count after its own write. For an object that
is not there the API server takes any version.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """An object that ought to be there."""

    manifest: Manifest
    first_form: Manifest | None = None
    """Applied before anything else where there is none, by the manager of the scale."""
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
class Apply:
    """Make an object what its manifest says."""

    kind: Kind
    manifest: Manifest
    manager: str

    @property
    def creates(self) -> bool:
        """Whether it fails where there is such an object."""
        return bool(self.manifest["metadata"].get("resourceVersion") == NO_VERSION)

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


Action = Apply | Delete


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
            actions += _creation(one)
        elif there.meta.owner_uid != owner_uid:
            going = there.meta.deleted_at is not None or bool(there.meta.owner_uid and _ours(there))
            conflicts.append(Conflict(kind=there.kind, name=there.meta.name, going=going))
        elif not one.keep_as_created and there.meta.deleted_at is None and _differs(one, there):
            actions.append(_apply(one, there.meta.resource_version))
    for child in unwanted:
        if child.meta.owner_uid == owner_uid and child.meta.deleted_at is None:
            kind, meta = KINDS[child.kind], child.meta
            actions.append(Delete(kind=kind, name=meta.name, uid=meta.uid))
    return Plan(actions=tuple(actions), conflicts=tuple(conflicts))


def _creation(wanted: Wanted) -> list[Action]:
    """What was not seen is made only if it is not there: nobody else's object is written to."""
    if wanted.first_form is None:
        return [_apply(wanted, NO_VERSION)]
    first = _at(wanted.first_form, NO_VERSION)
    return [Apply(kind=wanted.kind, manifest=first, manager=SCALE_MANAGER), _apply(wanted)]


def _apply(wanted: Wanted, version: str = "") -> Action:
    """Apply; to an object that is there only as it was seen: a paused leader must not undo."""
    manifest = _at(wanted.manifest, version) if version else wanted.manifest
    return Apply(kind=wanted.kind, manifest=manifest, manager=SPEC_MANAGER)


def _at(manifest: Manifest, version: str) -> Manifest:
    return manifest | {"metadata": manifest["metadata"] | {"resourceVersion": version}}


def _differs(wanted: Wanted, there: Child) -> bool:
    digest = wanted.manifest["metadata"]["annotations"][APPLIED_ANNOTATION]
    return there.meta.applied != digest or not holds(there.raw, wanted.manifest)


def _ours(child: Child) -> bool:
    # An earlier job of the same name had it: the garbage collector is about to take it.
    return bool(child.meta.applied)
