"""Finds the cheapest route to a published policy: a local or full version, and deltas after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rl_contracts.documents.manifest import BasePolicy, DeltaEntry, FileEntry, Manifest
from rl_contracts.errors import IntegrityError, ObjectMissingError


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """An object to download."""

    prefix: str
    entry: FileEntry

    @property
    def key(self) -> str:
        """Its key in the bucket."""
        return self.prefix + self.entry.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A start, from a local folder or from whole files, and the deltas to apply to it."""

    local: Path | None
    """A staged policy to copy; None to download ``files``."""
    files: tuple[RemoteFile, ...]
    deltas: tuple[tuple[RemoteFile, ...], ...]
    """By version, oldest first; the deltas of a version change different elements."""

    @property
    def delta_bytes(self) -> int:
        """Bytes of all deltas."""
        return sum(remote.entry.size_bytes for version in self.deltas for remote in version)

    @property
    def download_bytes(self) -> int:
        """Bytes to download."""
        return self.delta_bytes + sum(file.entry.size_bytes for file in self.files)


def cheapest_route(
    manifest: Manifest,
    *,
    prefix: str,
    local: Callable[[BasePolicy], Path | None],
    load: Callable[[BasePolicy], Manifest],
) -> Route:
    """The route with the fewest bytes to download.

    Walks back from the policy from base to base until no longer route can be cheaper.

    Args:
        manifest: of the policy; verified.
        prefix: of the policy in the bucket; ends with a slash.
        local: gives the folder of a base on this disk, or None.
        load: gives a base's manifest, with its digest verified.

    Raises:
        ObjectMissingError: retention removed an object that the only route needs.
        IntegrityError: no route leads to the policy, or a base does not fit its delta.
    """
    best: Route | None = None
    deltas: tuple[tuple[RemoteFile, ...], ...] = ()
    while True:
        if manifest.content == "full":
            best = _cheaper(
                best, Route(local=None, files=_remotes(prefix, manifest.files), deltas=deltas)
            )
        if manifest.delta is None:
            break
        base, deltas = manifest.delta.base, (_changes(prefix, manifest.delta), *deltas)
        here = Route(local=local(base), files=(), deltas=deltas)
        if here.local is not None:
            best = _cheaper(best, here)
        if best is not None and here.delta_bytes >= best.download_bytes:
            break
        try:
            base_manifest = load(base)
        except ObjectMissingError:
            if best is None:
                raise
            break
        check_base(base_manifest, base, of=manifest)
        prefix, manifest = base.prefix, base_manifest
    if best is None:
        raise IntegrityError(f"version {manifest.version} has neither full files nor a base")
    return best


def check_base(base_manifest: Manifest, base: BasePolicy, *, of: Manifest) -> None:
    """Raise IntegrityError unless the delta of ``of`` can be applied to this base.

    Args:
        base_manifest: the manifest that was loaded for the base.
        base: the base that the delta names.
        of: the manifest of the policy with the delta.
    """
    named = (base_manifest.kind, base_manifest.run, base_manifest.epoch, base_manifest.version)
    if named != ("policy", of.run, of.epoch, base.version) or base.version >= of.version:
        raise IntegrityError(f"version {of.version} of epoch {of.epoch} cannot start from {named}")
    forms, wanted = (
        {(tensor.name, tensor.file, tensor.dtype, tuple(tensor.shape)) for tensor in each.tensors}
        for each in (base_manifest, of)
    )
    if forms != wanted:
        raise IntegrityError(f"version {of.version} has other tensors than its base")


def _changes(prefix: str, delta: DeltaEntry) -> tuple[RemoteFile, ...]:
    return _remotes(prefix, delta.files)


def _remotes(prefix: str, files: list[FileEntry]) -> tuple[RemoteFile, ...]:
    return tuple(RemoteFile(prefix, entry) for entry in files)


def _cheaper(best: Route | None, other: Route) -> Route:
    # Of two routes with the same size the first needs fewer deltas.
    return other if best is None or other.download_bytes < best.download_bytes else best
