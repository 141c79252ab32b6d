"""The cheapest way to a published policy: what lies here or in full, and the deltas after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rl_contracts.documents.manifest import BasePolicy, DeltaEntry, FileEntry, Manifest
from rl_contracts.errors import IntegrityError, ObjectMissingError


@dataclass(frozen=True, slots=True)
class Remote:
    """An object to download."""

    prefix: str
    entry: FileEntry

    @property
    def key(self) -> str:
        """Its key in the bucket."""
        return self.prefix + self.entry.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Start from a folder or from whole files, then apply deltas."""

    local: Path | None
    """A staged policy to copy; None to download ``files``."""
    files: tuple[Remote, ...]
    deltas: tuple[tuple[Remote, ...], ...]
    """The oldest first; those of one version touch different elements."""

    @property
    def delta_bytes(self) -> int:
        """Bytes of all deltas."""
        return sum(one.entry.size_bytes for version in self.deltas for one in version)

    @property
    def download_bytes(self) -> int:
        """Bytes to download."""
        return self.delta_bytes + sum(file.entry.size_bytes for file in self.files)


def cheapest(
    manifest: Manifest,
    *,
    prefix: str,
    local: Callable[[BasePolicy], Path | None],
    load: Callable[[BasePolicy], Manifest],
) -> Route:
    """Walk back from a policy until no other way can be cheaper than the best one found.

    Args:
        manifest: of the policy; verified.
        prefix: where it lies; ends with a slash.
        local: where a base lies on this disk; None where it does not.
        load: a base's manifest, its digest verified.

    Raises:
        ObjectMissingError: retention has removed what the only way needs.
        IntegrityError: no way leads to the policy, or a base is not what its delta needs.
    """
    best: Route | None = None
    deltas: tuple[tuple[Remote, ...], ...] = ()
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
            found = load(base)
        except ObjectMissingError:
            if best is None:
                raise
            break
        check_base(found, base, of=manifest)
        prefix, manifest = base.prefix, found
    if best is None:
        raise IntegrityError(f"nothing leads to version {manifest.version}: it has no base")
    return best


def check_base(found: Manifest, base: BasePolicy, *, of: Manifest) -> None:
    """Raise IntegrityError unless ``found`` can be the base of the delta of ``of``."""
    named = (found.kind, found.run, found.epoch, found.version)
    if named != ("policy", of.run, of.epoch, base.version) or base.version >= of.version:
        raise IntegrityError(f"version {of.version} of epoch {of.epoch} cannot start from {named}")
    forms, wanted = (
        {(tensor.name, tensor.file, tensor.dtype, tuple(tensor.shape)) for tensor in each.tensors}
        for each in (found, of)
    )
    if forms != wanted:
        raise IntegrityError(f"version {of.version} has other tensors than its base")


def _changes(prefix: str, delta: DeltaEntry) -> tuple[Remote, ...]:
    return _remotes(prefix, delta.files)


def _remotes(prefix: str, files: list[FileEntry]) -> tuple[Remote, ...]:
    return tuple(Remote(prefix, entry) for entry in files)


def _cheaper(best: Route | None, other: Route) -> Route:
    # Of two equals the first one needs fewer deltas.
    return other if best is None or other.download_bytes < best.download_bytes else best
