from __future__ import annotations

import base64
import contextlib
from pathlib import Path
from typing import cast

import pytest

from rl_contracts.documents.datasets.example import Example
from rl_contracts.documents.task import ImagePart, Message
from rl_contracts.images.bounds import Bounds
from rl_contracts.images.decoder import BadImageError
from rl_contracts.spec.data import Images
from rl_contracts.stores.files.images import ImageStore
from rl_contracts.stores.objects import Objects
from rl_trainer.data.images import ImageIntake, read_mounted
from rl_trainer.errors import TerminatedError
from tests.models.tiny_vision import picture


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


class Kept:
    """A store of images that keeps their number alone."""

    count = 0

    def put(self, png: bytes) -> str:
        del png
        self.count += 1
        return "0" * 64


def test_a_stop_ends_the_intake_between_two_images() -> None:
    def before_each(count: int) -> None:
        if count == 2:
            raise TerminatedError

    kept = Kept()
    intake = ImageIntake(
        Images(),
        objects=cast("Objects", None),
        store=cast("ImageStore", kept),
        side=28,
        pixels=Bounds(fewest=28 * 28, most=64 * 28 * 28),
        before_each=before_each,
    )
    source = f"data:image/png;base64,{base64.b64encode(picture(28, 28)).decode()}"
    shown = Message(role="user", content=(ImagePart(source=source),) * 3)
    with contextlib.closing(intake), pytest.raises(TerminatedError):
        intake.shown(Example(id="1", messages=(shown,), answer=""), lambda path: b"")
    assert kept.count == 2
