"""One policy into the bucket: as a delta where that is smaller, in full where it must be.

Files go first, several at a time and straight from memory; the manifest goes last.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Literal

from rl_contracts.documents.manifest import BasePolicy, DeltaEntry, FileEntry, Manifest
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.spec.storage import Delta
from rl_contracts.stores.multipart import Source
from rl_contracts.stores.objects import Objects
from rl_policy_codec import state as codec
from rl_policy_codec.patch import Elements
from rl_trainer import shards
from rl_trainer.artifacts import MANIFEST
from rl_trainer.shards import Form, Shard, ShardContent
from rl_trainer.weights import Snapshot

log = logging.getLogger(__name__)

SHARD_BYTES = 1 << 30
FILES_AT_A_TIME = 2
PARTS_AT_A_TIME = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The last published policy of this epoch, which the next delta starts from."""

    name: BasePolicy
    state: Mapping[str, Elements]
    forms: Mapping[str, Form]
    since_anchor: int
    """Versions since the last full one; 0 when it is full itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A policy that is complete in the bucket."""

    manifest_sha256: str
    content: Literal["full", "delta"]
    base_version: int
    """0 when it has no delta."""
    size_bytes: int
    base: Base | None
    """What the next delta starts from."""


def send(
    objects: Objects,
    tensors: Snapshot,
    *,
    pointer: PolicyPointer,
    run: str,
    base: Base | None,
    delta: Delta,
    executor: Executor,
) -> Sent:
    """Write a policy under its pointer's prefix.

    Args:
        objects: the run's bucket.
        tensors: the policy; must not change any more.
        pointer: its names; the manifest's digest is not known yet.
        run: whose policy.
        base: the version before in this epoch; None for the first, which is always full.
        delta: when deltas are allowed.
        executor: for encoding and digests.
    """
    state = {name: shards.flat(one) for name, one in tensors.items()}
    forms = {name: shards.form(one) for name, one in tensors.items()}
    layout = shards.lay_out(forms, shard_bytes=SHARD_BYTES)
    changes = _changes(state, forms, base, delta, executor)
    since_anchor = base.since_anchor + 1 if base else delta.anchor_every
    full = changes is None or since_anchor >= delta.anchor_every
    digests = codec.start_digests(state, executor)
    named = dict(_named(changes or []))
    entry = None if changes is None or base is None else _entry(named, base)
    _upload(objects, pointer.prefix, layout if full else [], state, named)
    manifest = Manifest(
        kind="policy",
        content="full" if full else "delta",
        run=run,
        epoch=pointer.epoch,
        step=pointer.step,
        version=pointer.version,
        files=[shard.entry for shard in layout] if full else [],
        tensors=shards.tensor_entries(
            layout, forms, {name: one.result() for name, one in digests.items()}
        ),
        delta=entry,
    )
    encoded = manifest.to_bytes()
    objects.put(pointer.prefix + MANIFEST, encoded)
    sha256 = hashlib.sha256(encoded).hexdigest()
    name = BasePolicy(version=pointer.version, prefix=pointer.prefix, manifest_sha256=sha256)
    return Sent(
        manifest_sha256=sha256,
        content=manifest.content,
        base_version=entry.base.version if entry else 0,
        size_bytes=manifest.full_bytes + (entry.size_bytes if entry else 0) + len(encoded),
        base=None
        if delta.anchor_every == 1
        else Base(name=name, state=state, forms=forms, since_anchor=0 if full else since_anchor),
    )


def _changes(
    state: Mapping[str, Elements],
    forms: Mapping[str, Form],
    base: Base | None,
    delta: Delta,
    executor: Executor,
) -> list[bytes] | None:
    """Delta files; None where there must be none, or they would be too large."""
    if base is None or base.forms != forms:
        return None
    total = sum(one.size_bytes for one in forms.values())
    expected = codec.expected_fraction(state, base.state)
    if expected > 1.5 * delta.max_fraction:  # not worth encoding; a sample may be off
        log.debug("no delta: it would be about %.0f %% of all weights", 100 * expected)
        return None
    files = codec.encode(state, base.state, executor)
    found = sum(map(len, files))
    return files if found <= delta.max_fraction * total else None


def _named(files: Sequence[bytes]) -> Sequence[tuple[str, bytes]]:
    return [(f"delta-{number:05d}.zst", one) for number, one in enumerate(files)]


def _entry(named: Mapping[str, bytes], base: Base) -> DeltaEntry:
    files = [
        FileEntry(name=name, size_bytes=len(one), sha256=hashlib.sha256(one).hexdigest())
        for name, one in named.items()
    ]
    return DeltaEntry(base=base.name, files=files)


def _upload(
    objects: Objects,
    prefix: str,
    layout: Sequence[Shard],
    state: Mapping[str, Elements],
    deltas: Mapping[str, bytes],
) -> None:
    """Write all files, a few at a time; raises the first error after the others have ended."""
    wanted: list[tuple[str, Source, int]] = [
        (name, partial(_slice, memoryview(content)), len(content))
        for name, content in deltas.items()
    ]
    wanted += [(one.name, ShardContent(one, state), one.size_bytes) for one in layout]
    with (
        ThreadPoolExecutor(PARTS_AT_A_TIME, thread_name_prefix="upload-part") as parts,
        ThreadPoolExecutor(FILES_AT_A_TIME, thread_name_prefix="upload") as files,
    ):
        jobs = [
            files.submit(objects.put_parts, prefix + name, source, size_bytes=size, executor=parts)
            for name, source, size in wanted
        ]
        wait(jobs)
    for job in jobs:
        job.result()


def _slice(content: memoryview, offset: int, size_bytes: int) -> list[memoryview]:
    return [content[offset : offset + size_bytes]]
