"""Which folders of the bucket nobody needs any more. Pure.

Folders are named ``<number>-<epoch>-<nonce>``. A trainer deletes only what its own or an earlier
epoch made: one that was fenced out without knowing it must not touch its successor's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rl_contracts.documents.manifest import PolicyRecord
from rl_trainer.artifacts import MANIFEST


@dataclass(frozen=True, slots=True, order=True)
class Folder:
    """A folder as its name tells it."""

    number: int
    """Step or version."""
    epoch: int
    prefix: str
    complete: bool
    """Whether its manifest is there."""


def folders(keys: Iterable[str], *, root: str) -> list[Folder]:
    """The folders right under ``root`` (which ends with a slash), by number."""
    members: dict[str, set[str]] = {}
    for key in keys:
        name, slash, rest = key.removeprefix(root).partition("/")
        if slash:
            members.setdefault(name, set()).add(rest)
    found = []
    for name, files in members.items():
        number, epoch, _ = name.split("-")
        found.append(Folder(int(number), int(epoch), f"{root}{name}/", MANIFEST in files))
    return sorted(found)


def expired_checkpoints(
    found: Iterable[Folder], *, durable: str, keep_last: int, epoch: int
) -> list[Folder]:
    """Checkpoints to delete once ``durable`` (a prefix) is the committed one."""
    ours = [one for one in found if one.epoch <= epoch]
    committed = next((one for one in ours if one.prefix == durable), None)
    if committed is None:
        return []
    older = [one for one in ours if one.number < committed.number]
    complete = [one for one in older if one.complete]
    kept = complete[len(complete) - min(len(complete), keep_last - 1) :]
    return [one for one in older if one not in kept]


def orphaned_policies(found: Iterable[Folder], *, kept: set[str], epoch: int) -> list[Folder]:
    """Policies that an earlier epoch began to upload and never catalogued."""
    return [one for one in found if one.epoch < epoch and one.prefix not in kept]


def needed_policies(records: Iterable[PolicyRecord], *, keep_last: int) -> set[int]:
    """Versions of the newest ``keep_last`` policies and of those that their deltas start from."""
    found = list(records)
    return with_bases(found, set(sorted(one.version for one in found)[-keep_last:]))


def with_bases(records: Iterable[PolicyRecord], wanted: set[int]) -> set[int]:
    """These versions and, for each, those that lead to it from the full one before it."""
    by_version = {one.version: one for one in records}
    needed: set[int] = set()
    for version in wanted:
        record = by_version.get(version)
        while record is not None and record.version not in needed:
            needed.add(record.version)
            record = by_version.get(record.base_version) if record.content == "delta" else None
    return needed
