from __future__ import annotations

from rl_trainer.retention import expired_checkpoints, folders, orphaned_policies

ROOT = "ns/runs/r/checkpoints/"


def keys(*names: str, complete: bool = True) -> list[str]:
    files = ["state.json", "manifest.json"] if complete else ["state.json"]
    return [f"{ROOT}{name}/{file}" for name in names for file in files]


def expired(found: list[str], *, durable: str, keep_last: int, epoch: int) -> list[str]:
    gone = expired_checkpoints(
        folders(found, root=ROOT), durable=f"{ROOT}{durable}/", keep_last=keep_last, epoch=epoch
    )
    return [one.prefix.removeprefix(ROOT).rstrip("/") for one in gone]


def test_the_newest_checkpoints_stay() -> None:
    names = ["00000010-1-a", "00000020-1-b", "00000030-2-c"]
    assert expired(keys(*names), durable="00000030-2-c", keep_last=2, epoch=2) == names[:1]
    assert expired(keys(*names), durable="00000030-2-c", keep_last=1, epoch=2) == names[:2]
    assert expired(keys(*names), durable="00000030-2-c", keep_last=5, epoch=2) == []


def test_torn_ones_do_not_count_as_kept() -> None:
    found = [
        *keys("00000010-1-a", "00000030-2-c"),
        *keys("00000020-1-torn", complete=False),
    ]
    assert expired(found, durable="00000030-2-c", keep_last=2, epoch=2) == ["00000020-1-torn"]


def test_a_later_epoch_is_never_touched_nor_anything_without_the_durable_one() -> None:
    found = keys("00000010-1-a", "00000020-3-b", "00000030-2-c")
    assert expired(found, durable="00000030-2-c", keep_last=1, epoch=2) == ["00000010-1-a"]
    assert expired(found, durable="00000040-2-d", keep_last=1, epoch=2) == []


def test_orphaned_policies_are_those_of_earlier_epochs_without_a_record() -> None:
    root = "policies/"
    found = folders(
        [f"{root}{name}/model.safetensors" for name in ("00000001-1-a", "00000002-1-b",
                                                        "00000003-2-c", "00000004-3-d")],
        root=root,
    )  # fmt: skip
    gone = orphaned_policies(found, kept={f"{root}00000001-1-a/"}, epoch=2)
    assert [one.prefix for one in gone] == [f"{root}00000002-1-b/"]
