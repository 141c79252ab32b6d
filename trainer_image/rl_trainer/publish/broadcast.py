"""One policy into the bucket: as a delta where that is smaller, in full where it must be.

Every rank uploads its own tensors' files, several at a time and straight from memory; the manifest
goes last, from rank 0, once all of them are there.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from rl_contracts import adapters
from rl_contracts.documents.manifest import AdapterEntry, BasePolicy, DeltaEntry, Manifest
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.spec.storage import Delta
from rl_contracts.stores.files import artifacts
from rl_contracts.stores.files.artifacts import MANIFEST
from rl_trainer.publish.handover import PolicyFiles
from rl_trainer.publish.policy_shard import (
    MODEL_STEM,
    NO_VERSION,
    EncodedDelta,
    EncodeDelta,
    KeepAsBase,
    ReportSize,
    ShardRequest,
    ShardResponse,
    SizeReport,
    UploadedFiles,
    UploadFiles,
)

log = logging.getLogger(__name__)

T = TypeVar("T")
RequestAll: TypeAlias = Callable[[Sequence[ShardRequest]], list[ShardResponse]]
"""Sends each rank its request, by rank, and returns the responses by rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The last published policy of this epoch, which the next delta starts from."""

    name: BasePolicy
    since_anchor: int
    """Versions since the last full one; 0 when it is full itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A policy that is complete in the bucket."""

    manifest_sha256: str
    weights_sha256: str
    content: Literal["full", "delta"]
    base_version: int
    """0 when it has no delta."""
    size_bytes: int
    base: Base | None
    """What the next delta starts from."""


def send(
    objects: PolicyFiles,
    request_all: RequestAll,
    *,
    ranks: int,
    number: int,
    pointer: PolicyPointer,
    run: str,
    base: Base | None,
    delta: Delta,
    adapter: AdapterEntry | None = None,
) -> Sent:
    """Write a policy under its pointer's prefix.

    Args:
        objects: where the files go: the run's bucket, or a folder.
        request_all: sends each rank, by rank, its request; each holds some of the tensors.
        ranks: how many.
        number: of the snapshot that all of them have taken.
        pointer: its names; the manifest's digest is not known yet.
        run: whose policy.
        base: the version before in this epoch; None for the first, which is always full.
        delta: when deltas are allowed.
        adapter: where the policy is an adapter: whose.

    Raises:
        RLError: what ``request_all`` and the bucket raise; nothing names the version then.
    """
    report_size = ReportSize(number=number, base=_version(base))
    sizes = _responses(request_all, [report_size] * ranks, SizeReport)
    encoded = _encode_all(request_all, sizes, delta)
    since_anchor = base.since_anchor + 1 if base else delta.anchor_every
    full = encoded is None or since_anchor >= delta.anchor_every
    stem = adapters.STEM if adapter else MODEL_STEM
    uploaded = _upload_all(request_all, pointer.prefix, sizes, encoded, full=full, stem=stem)
    _check_all_uploaded(objects, pointer.prefix, uploaded)
    manifest = Manifest(
        kind="policy",
        content="full" if full else "delta",
        run=run,
        epoch=pointer.epoch,
        step=pointer.step,
        version=pointer.version,
        files=[file for each in uploaded for file in each.files],
        tensors=[tensor for each in uploaded for tensor in each.tensors],
        delta=None if encoded is None else _delta_entry(base, uploaded),
        adapter=adapter,
    )
    return _commit(objects, pointer, manifest, since_anchor=_next_anchor(delta, full, since_anchor))


def _next_anchor(delta: Delta, full: bool, since_anchor: int) -> int | None:
    """Versions since the last full one, for the next delta; None where deltas are off."""
    if delta.anchor_every == 1:
        return None
    return 0 if full else since_anchor


def _delta_entry(base: Base | None, uploaded: Sequence[UploadedFiles]) -> DeltaEntry | None:
    if base is None:
        return None
    return DeltaEntry(base=base.name, files=[file for each in uploaded for file in each.deltas])


def _commit(
    objects: PolicyFiles, pointer: PolicyPointer, manifest: Manifest, *, since_anchor: int | None
) -> Sent:
    """Write the manifest, which makes the policy complete."""
    stored, entry = manifest.to_bytes(), manifest.delta
    objects.put(pointer.prefix + MANIFEST, stored)
    sha256 = hashlib.sha256(stored).hexdigest()
    name = BasePolicy(version=pointer.version, prefix=pointer.prefix, manifest_sha256=sha256)
    return Sent(
        manifest_sha256=sha256,
        weights_sha256=manifest.weights_sha256,
        content=manifest.content,
        base_version=entry.base.version if entry else 0,
        size_bytes=manifest.full_bytes + (entry.size_bytes if entry else 0) + len(stored),
        base=None if since_anchor is None else Base(name=name, since_anchor=since_anchor),
    )


def keep_base(request_all: RequestAll, *, ranks: int, base: Base | None) -> None:
    """Have the ranks keep what was published as the next delta's base, or nothing."""
    request_all([KeepAsBase(version=_version(base))] * ranks)


def _version(base: Base | None) -> int:
    return base.name.version if base else NO_VERSION


def _responses(request_all: RequestAll, requests: Sequence[ShardRequest], kind: type[T]) -> list[T]:
    responses = [response for response in request_all(requests) if isinstance(response, kind)]
    assert len(responses) == len(requests), f"not every rank answered with {kind.__name__}"
    return responses


def _encode_all(
    request_all: RequestAll, sizes: Sequence[SizeReport], delta: Delta
) -> list[EncodedDelta] | None:
    """Delta files of all ranks; None where there must be none, or they would be too large."""
    total = sum(report.size_bytes for report in sizes)
    expected = sum(report.delta_bytes for report in sizes)
    if expected > 1.5 * delta.max_fraction * total:  # not worth encoding; a sample may be off
        log.debug("no delta: it would have about %g of %d bytes", expected, total)
        return None
    deltas = _responses(request_all, [EncodeDelta()] * len(sizes), EncodedDelta)
    actual = sum(encoded.size_bytes for encoded in deltas)
    return deltas if actual <= delta.max_fraction * total else None


def _upload_all(
    request_all: RequestAll,
    prefix: str,
    sizes: Sequence[SizeReport],
    encoded: Sequence[EncodedDelta] | None,
    *,
    full: bool,
    stem: str,
) -> list[UploadedFiles]:
    files = [report.files for report in sizes]
    deltas = [each.files for each in encoded] if encoded is not None else [0] * len(files)
    uploads = [
        UploadFiles(
            prefix=prefix,
            full=full,
            delta=encoded is not None,
            first_file=1 + before,
            file_count=sum(files),
            first_delta=first_delta,
            stem=stem,
        )
        for before, first_delta in zip(_before(files), _before(deltas), strict=True)
    ]
    return _responses(request_all, uploads, UploadedFiles)


def _before(counts: Sequence[int]) -> list[int]:
    """How many there are in all before each."""
    return [0, *itertools.accumulate(counts)][: len(counts)]


def _check_all_uploaded(
    objects: PolicyFiles, prefix: str, uploaded: Sequence[UploadedFiles]
) -> None:
    """Check that rank 0, too, sees the files of all ranks in the bucket."""
    if len(uploaded) > 1:
        files = [file for each in uploaded for file in (*each.files, *each.deltas)]
        artifacts.check_uploaded(objects, prefix, files)
