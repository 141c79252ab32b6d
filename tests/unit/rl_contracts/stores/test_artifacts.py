"""Folders under a manifest, whose names others may have written."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import cast

import pytest

from rl_contracts.documents.manifest import FileEntry, Manifest
from rl_contracts.errors import IntegrityError
from rl_contracts.model_files import INDEX_FILE, weight_files
from rl_contracts.stores.files.artifacts import download
from rl_contracts.stores.objects import Objects

NAMES = ("/etc/passwd", "../state.pt", "a/../../b", "a/b", "..", ".", ".hidden", "")


class _Bucket:
    """A bucket of one manifest, from which no file may be fetched."""

    def __init__(self, manifest: bytes) -> None:
        self.manifest = manifest

    def get(self, key: str) -> bytes:
        assert key == "runs/r/manifest.json"
        return self.manifest

    def get_file(self, key: str, path: Path, *, sha256: str = "", most: int = 0) -> None:
        raise AssertionError(f"{key} was fetched to {path}")


@pytest.mark.parametrize("name", NAMES)
def test_no_file_is_written_outside_of_its_folder(name: str, tmp_path: Path) -> None:
    entry = FileEntry(name=name, size_bytes=1, sha256="0" * 64)
    manifest = Manifest(kind="checkpoint", run="r", epoch=1, step=1, files=[entry], tensors=[])
    encoded = manifest.to_bytes()
    with pytest.raises(IntegrityError, match="names a file"):
        download(
            cast("Objects", _Bucket(encoded)),
            tmp_path,
            prefix="runs/r/",
            manifest_sha256=hashlib.sha256(encoded).hexdigest(),
        )


@pytest.mark.parametrize("name", NAMES)
def test_no_weights_are_read_outside_of_their_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / INDEX_FILE).write_text(f'{{"weight_map": {{"a.weight": "{name}"}}}}')
    with pytest.raises(IntegrityError, match=INDEX_FILE):
        weight_files(tmp_path)
