"""Which folders of the bucket are no longer needed. Pure.

Folders are named ``<number>-<epoch>-<nonce>``; what has another name is a user's, and is neither
read nor deleted. A trainer deletes only what its own or an earlier
epoch made: one that was fenced out without knowing it must not touch its successor's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rl_contracts.documents.manifest import PolicyRecord
from rl_contracts.spec.retention import ObjectBound
from rl_contracts.stores.files.artifacts import MANIFEST
from rl_contracts.stores.objects import ObjectStat

T = TypeVar("T")
UNBOUNDED = ObjectBound()
NAME = re.compile(r"([0-9]+)-([0-9]+)-[0-9a-f]+")


@dataclass(frozen=True, slots=True, order=True)
class Folder:
    """A folder of the bucket, parsed from its name and its objects."""

    number: int
    """Step or version."""
    epoch: int
    prefix: str
    complete: bool
    """Whether its manifest is there."""
    written_at: float = 0.0
    """Bucket time of its newest object."""
    size_bytes: int = 0


def folders(objects: Iterable[ObjectStat], *, root: str) -> list[Folder]:
    """The trainers' folders right under ``root`` (which ends with a slash), by number."""
    members: dict[str, dict[str, ObjectStat]] = {}
    for stored in objects:
        name, slash, rest = stored.key.removeprefix(root).partition("/")
        if slash:
            members.setdefault(name, {})[rest] = stored
    parsed = []
    for name, files in members.items():
        named = NAME.fullmatch(name)
        if named is None:
            continue
        parsed.append(
            Folder(
                number=int(named[1]),
                epoch=int(named[2]),
                prefix=f"{root}{name}/",
                complete=MANIFEST in files,
                written_at=max(file.modified_at for file in files.values()),
                size_bytes=sum(file.size_bytes for file in files.values()),
            )
        )
    return sorted(parsed)


def newest_within(
    newest_first: Sequence[T],
    *,
    keep_last: int,
    bound: ObjectBound,
    now: float,
    time_of: Callable[[T], float],
    size_of: Callable[[Sequence[T]], int],
) -> Sequence[T]:
    """The longest prefix within count, age and bytes; the newest item stays in any case.

    Args:
        newest_first: all items.
        keep_last: items to keep at most, ≥ 1.
        bound: of age and bytes.
        now: on the same clock as ``time_of``.
        time_of: when an item was written.
        size_of: bytes that keeping these items takes.
    """
    kept = min(len(newest_first), 1)
    for number, item in enumerate(newest_first[1:keep_last], start=2):
        age, oldest = now - time_of(item), bound.max_age_seconds
        if oldest is not None and age > oldest:
            break
        if bound.max_bytes is not None and size_of(newest_first[:number]) > bound.max_bytes:
            break
        kept = number
    return newest_first[:kept]


def expired_checkpoints(
    checkpoints: Iterable[Folder],
    *,
    durable: str,
    keep_last: int,
    epoch: int,
    bound: ObjectBound = UNBOUNDED,
    now: float = 0.0,
) -> list[Folder]:
    """Checkpoints to delete once ``durable`` (a prefix) is the committed one.

    Args:
        checkpoints: by number.
        durable: stays, and whatever is newer.
        keep_last: checkpoints that stay at most, the durable one included.
        epoch: folders of later ones stay.
        bound: of age and bytes.
        now: bucket time.
    """
    ours = [folder for folder in checkpoints if folder.epoch <= epoch]
    committed = next((our for our in ours if our.prefix == durable), None)
    if committed is None:
        return []
    # Of the same step: what an earlier epoch began and a crash cut short.
    older = [our for our in ours if (our.number, our.epoch) < (committed.number, committed.epoch)]
    kept = newest_within(
        [committed, *(folder for folder in reversed(older) if folder.complete)],
        keep_last=keep_last,
        bound=bound,
        now=now,
        time_of=lambda folder: folder.written_at,
        size_of=lambda some: sum(folder.size_bytes for folder in some),
    )
    return [folder for folder in older if folder not in kept]


def orphaned_policies(policies: Iterable[Folder], *, kept: set[str], epoch: int) -> list[Folder]:
    """Policies that an earlier epoch began to upload and never catalogued."""
    return [folder for folder in policies if folder.epoch < epoch and folder.prefix not in kept]


def needed_policies(
    records: Iterable[PolicyRecord],
    *,
    keep_last: int,
    bound: ObjectBound = UNBOUNDED,
    now: float = 0.0,
) -> set[int]:
    """Versions of the newest policies within the bounds and of those that their deltas start from.

    Args:
        records: the catalogue.
        keep_last: policies to keep at most, without the bases of their deltas.
        bound: of age, and of bytes with what deltas start from.
        now: store time.
    """
    by_version = {record.version: record for record in records}

    def size_of(some: Sequence[int]) -> int:
        return sum(
            by_version[with_base].size_bytes
            for with_base in with_bases(by_version.values(), set(some))
        )

    kept = newest_within(
        sorted(by_version, reverse=True),
        keep_last=keep_last,
        bound=bound,
        now=now,
        time_of=lambda version: by_version[version].published_at,
        size_of=size_of,
    )
    return with_bases(by_version.values(), set(kept))


def with_bases(records: Iterable[PolicyRecord], wanted: set[int]) -> set[int]:
    """These versions and, for each, those that lead to it from the full one before it."""
    by_version = {record.version: record for record in records}
    needed: set[int] = set()
    for version in wanted:
        record = by_version.get(version)
        while record is not None and record.version not in needed:
            needed.add(record.version)
            record = by_version.get(record.base_version) if record.content == "delta" else None
    return needed
