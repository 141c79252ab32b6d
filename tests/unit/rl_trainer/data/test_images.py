from __future__ import annotations

from pathlib import Path

import pytest

from rl_contracts.images.decoder import BadImageError
from rl_trainer.data.images import read_mounted


def test_a_path_is_read_within_its_folder_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"image")
    (tmp_path / "secret").write_bytes(b"secret")
    (folder / "link.png").symlink_to(tmp_path / "secret")
    assert read_mounted(folder, "a.png", most=10) == b"image"
    with pytest.raises(BadImageError, match="has 5 bytes, more than"):
        read_mounted(folder, "a.png", most=4)
    for path in ("link.png", "../secret", "b.png"):
        with pytest.raises(BadImageError, match="is not in the folder"):
            read_mounted(folder, path, most=10)


def test_a_path_that_no_file_can_have_is_a_bad_image(tmp_path: Path) -> None:
    (tmp_path / "around.png").symlink_to(tmp_path / "around.png")
    for path in ("a" * 2000, "around.png"):
        with pytest.raises(BadImageError, match="in the folder"):
            read_mounted(tmp_path, path, most=10)
