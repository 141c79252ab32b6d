from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_contracts.documents.manifest import PolicyRecord
from rl_contracts.spec.retention import ObjectBound
from rl_contracts.stores.objects import ObjectStat
from rl_trainer.checkpoint.retention import (
    UNBOUNDED,
    expired_checkpoints,
    folders,
    needed_policies,
    orphaned_policies,
    with_bases,
)

ROOT = "ns/runs/r/checkpoints/"
NOW = 1000.0


def stat(key: str, *, at: float = 0.0, size: int = 0) -> ObjectStat:
    return ObjectStat(key, size, "", at)


def keys(*names: str, complete: bool = True) -> list[ObjectStat]:
    """Of step n, its files were written at second n and have 50 bytes each."""
    files = ["state.json", "manifest.json"] if complete else ["state.json"]
    return [
        stat(f"{ROOT}{name}/{file}", at=float(name.split("-")[0]), size=50)
        for name in names
        for file in files
    ]


def expired(
    stats: list[ObjectStat], *, durable: str, keep_last: int, epoch: int, **bounds: Any
) -> list[str]:
    gone = expired_checkpoints(
        folders(stats, root=ROOT),
        durable=f"{ROOT}{durable}/",
        keep_last=keep_last,
        epoch=epoch,
        bound=ObjectBound(**bounds),
        now=NOW,
    )
    return [folder.prefix.removeprefix(ROOT).rstrip("/") for folder in gone]


def test_the_newest_checkpoints_stay() -> None:
    names = ["00000010-1-a", "00000020-1-b", "00000030-2-c"]
    assert expired(keys(*names), durable="00000030-2-c", keep_last=2, epoch=2) == names[:1]
    assert expired(keys(*names), durable="00000030-2-c", keep_last=1, epoch=2) == names[:2]
    assert expired(keys(*names), durable="00000030-2-c", keep_last=5, epoch=2) == []


def test_incomplete_checkpoints_do_not_count_as_kept() -> None:
    stats = [
        *keys("00000010-1-a", "00000030-2-c"),
        *keys("00000020-1-f0", complete=False),
    ]
    assert expired(stats, durable="00000030-2-c", keep_last=2, epoch=2) == ["00000020-1-f0"]


def test_an_incomplete_checkpoint_of_the_same_step_is_deleted() -> None:
    stats = [*keys("00000010-1-f0", complete=False), *keys("00000010-2-b")]
    assert expired(stats, durable="00000010-2-b", keep_last=3, epoch=2) == ["00000010-1-f0"]


def test_a_later_epoch_is_never_touched_nor_anything_without_the_durable_one() -> None:
    stats = keys("00000010-1-a", "00000020-3-b", "00000030-2-c")
    assert expired(stats, durable="00000030-2-c", keep_last=1, epoch=2) == ["00000010-1-a"]
    assert expired(stats, durable="00000040-2-d", keep_last=1, epoch=2) == []


def test_folders_that_no_trainer_named_are_neither_read_nor_deleted() -> None:
    foreign = ["keep-this", "best", "00000003-copy", "00000010-1-a-copy", "00000010-1-", "3-x-a"]
    stats = [stat(f"{ROOT}{name}/manifest.json") for name in foreign]
    ours = keys("00000010-1-a", "00000020-1-b")
    stored = folders([*stats, stat(f"{ROOT}notes.txt"), *ours], root=ROOT)
    assert [folder.prefix for folder in stored] == [
        f"{ROOT}00000010-1-a/",
        f"{ROOT}00000020-1-b/",
    ]
    stats += ours
    assert expired(stats, durable="00000020-1-b", keep_last=1, epoch=2) == ["00000010-1-a"]


def test_orphaned_policies_are_those_of_earlier_epochs_without_a_record() -> None:
    root = "policies/"
    stored = folders(
        [
            stat(f"{root}{name}/model.safetensors")
            for name in ("00000001-1-a", "00000002-1-b", "00000003-2-c", "00000004-3-d")
        ],
        root=root,
    )
    gone = orphaned_policies(stored, kept={f"{root}00000001-1-a/"}, epoch=2)
    assert [folder.prefix for folder in gone] == [f"{root}00000002-1-b/"]


@pytest.mark.parametrize(
    ("bounds", "gone"),
    [
        ({}, 0),
        ({"max_age_seconds": 990}, 0),
        ({"max_age_seconds": 985}, 1),
        ({"max_age_seconds": 1}, 3),
        ({"max_bytes": 400}, 0),
        ({"max_bytes": 399}, 1),
        ({"max_bytes": 250}, 2),
        ({"max_bytes": 1}, 3),
        ({"max_bytes": 300, "max_age_seconds": 1}, 3),
    ],
)
def test_checkpoint_bounds_never_delete_the_durable_one(bounds: dict[str, int], gone: int) -> None:
    names = ["00000010-1-a", "00000020-1-b", "00000030-2-c", "00000040-2-d"]
    stats = keys(*names)
    assert expired(stats, durable=names[-1], keep_last=9, epoch=2, **bounds) == names[:gone]


def a_policy(version: int, *, base: int = 0, size: int = 10) -> PolicyRecord:
    """Published at second ``version``."""
    return PolicyRecord(
        id=f"p{version}",
        run="r",
        version=version,
        epoch=1,
        step=version,
        parent=version - 1,
        prefix=f"p/{version}/",
        manifest_sha256="",
        size_bytes=size,
        published_at=float(version),
        publish_seconds=0.0,
        content="delta" if base else "full",
        base_version=base,
    )


CHAIN = [
    a_policy(1, size=100),
    a_policy(2, base=1),
    a_policy(3, base=2),
    a_policy(4, size=100),
    a_policy(5, base=4),
    a_policy(6, base=5),
]


@pytest.mark.parametrize(
    ("bounds", "keep_last", "needed"),
    [
        ({}, 2, {4, 5, 6}),
        ({}, 4, {1, 2, 3, 4, 5, 6}),
        ({"max_age_seconds": 995}, 6, {4, 5, 6}),  # 5 may stay, so its base does
        ({"max_age_seconds": 1}, 6, {4, 5, 6}),  # the newest needs both
        ({"max_bytes": 230}, 6, {4, 5, 6}),  # 3 would bring 120 bytes
        ({"max_bytes": 240}, 6, {1, 2, 3, 4, 5, 6}),
        ({"max_bytes": 1}, 6, {4, 5, 6}),
    ],
)
def test_policy_bounds_count_the_bases_of_deltas(
    bounds: dict[str, int], keep_last: int, needed: set[int]
) -> None:
    bound = ObjectBound(**bounds)
    assert needed_policies(CHAIN, keep_last=keep_last, bound=bound, now=NOW) == needed


limits = st.one_of(st.none(), st.integers(1, 60))


@given(
    deltas=st.lists(st.booleans(), max_size=12),
    keep_last=st.integers(1, 14),
    bound=st.builds(ObjectBound, max_age_seconds=limits, max_bytes=limits),
)
def test_kept_policies_have_all_their_bases(
    deltas: list[bool], keep_last: int, bound: ObjectBound
) -> None:
    records = [
        a_policy(version, base=version - 1 if delta and version > 1 else 0)
        for version, delta in enumerate(deltas, start=1)
    ]
    now = float(len(records))
    needed = needed_policies(records, keep_last=keep_last, bound=bound, now=now)
    assert with_bases(records, needed) == needed
    assert {record.version for record in records[-1:]} <= needed
    assert needed <= needed_policies(records, keep_last=keep_last, bound=UNBOUNDED, now=now)
    newest = with_bases(records, {len(records)})
    within = sum(record.size_bytes for record in records if record.version in needed)
    if bound.max_bytes is not None and needed != newest:
        assert within <= bound.max_bytes
