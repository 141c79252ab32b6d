from __future__ import annotations

import base64
import io

import pytest
from PIL import Image
from pydantic import ValidationError

from rl_contracts.documents.image_types import image_type
from rl_contracts.queries.answers import ImageAnswer


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("lossless", [True, False])
def test_files_of_the_three_types_are_known(kind: str, lossless: bool) -> None:
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, kind, lossless=lossless)
    assert image_type(file.getvalue()) == f"image/{kind.lower()}"
    answer = ImageAnswer(content=base64.b64encode(file.getvalue()).decode())
    assert (answer.file, answer.media_type) == (file.getvalue(), f"image/{kind.lower()}")


@pytest.mark.parametrize(
    "file",
    [
        b"",
        b"\x89PNG",
        b"GIF89a" + bytes(20),
        b"<!doctype html><script>alert(1)</script>",
        b'<svg xmlns="http://www.w3.org/2000/svg"/>',
        b"\n\x89PNG\r\n\x1a\n",
        b"RIFF\x00\x00\x00\x00WAVEfmt ",
        b"%PDF-1.7",
    ],
)
def test_no_other_file_is_an_image(file: bytes) -> None:
    assert image_type(file) is None
    with pytest.raises(ValidationError, match="no PNG, JPEG or WebP"):
        ImageAnswer(content=base64.b64encode(file).decode())


def test_what_is_not_base64_is_no_answer() -> None:
    with pytest.raises(ValidationError):
        ImageAnswer(content="<html>")
