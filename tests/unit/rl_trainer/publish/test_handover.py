"""Files of policies in a folder, as an agent of the same pod takes them over."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rl_contracts.disk import DiskFullError
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.turns import HANDOVER
from rl_sampler.engine.weights import WeightsFolder
from rl_sampler.policy import handover
from rl_trainer.publish.handover import PART_BYTES, FolderFiles

PREFIX = "runs/r/policies/00000007-2-abcd/"
NAME = "00000007-2-abcd"


def test_files_of_several_parts_and_the_manifest_lie_in_the_policys_folder(tmp_path: Path) -> None:
    content, files = bytes(range(256)) * 200_000, FolderFiles(tmp_path)
    assert len(content) > PART_BYTES
    pointer = PolicyPointer(version=7, epoch=2, step=3, prefix=PREFIX, manifest_sha256="d")
    weights = WeightsFolder(tmp_path)
    with ThreadPoolExecutor(1) as executor:
        files.put_parts(
            f"{PREFIX}model.safetensors",
            lambda offset, size: [memoryview(content)[offset : offset + size]],
            size_bytes=len(content),
            executor=executor,
        )
    assert not handover.offered(weights, pointer), "a policy without a manifest is not complete"
    files.put(f"{PREFIX}manifest.json", b"{}")
    assert handover.offered(weights, pointer)
    folder = tmp_path / "handover" / NAME
    assert (folder / "model.safetensors").read_bytes() == content
    listed = {each.key: each.size_bytes for each in files.list(PREFIX)}
    assert listed == {f"{PREFIX}manifest.json": 2, f"{PREFIX}model.safetensors": len(content)}


def test_what_was_taken_over_is_removed_with_what_came_before_it(tmp_path: Path) -> None:
    files = FolderFiles(tmp_path)
    for version in (6, 7, 8):
        files.put(f"p/{version:08d}-2-abcd/manifest.json", b"{}")
    handover.discard(WeightsFolder(tmp_path), through=NAME)
    assert [path.name for path in (tmp_path / "handover").iterdir()] == ["00000008-2-abcd"]


def test_a_folder_that_cannot_be_written_is_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "handover" / NAME / "model.safetensors").mkdir(parents=True)
    with ThreadPoolExecutor(1) as executor, pytest.raises(DiskFullError, match="for the engine"):
        FolderFiles(tmp_path).put_parts(
            f"{PREFIX}model.safetensors", lambda *_: [], size_bytes=0, executor=executor
        )


def test_a_folder_that_cannot_be_made_is_named_as_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / HANDOVER).write_text("a file in its place")
    with pytest.raises(DiskFullError, match=r"writing manifest\.json for the engine"):
        FolderFiles(tmp_path).put("runs/r/policies/1/manifest.json", b"{}")
