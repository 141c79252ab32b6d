from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from rl_contracts.images import worker
from rl_contracts.images.decoder import BadImageError, Decoder
from tests.models.tiny_vision import picture

SIDE = 28


@pytest.fixture(scope="module")
def decoder() -> Iterator[Decoder]:
    made = Decoder(side=SIDE, fewest=SIDE**2, most=64 * SIDE**2)
    yield made
    made.close()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_an_image_becomes_a_png_of_whole_squares(decoder: Decoder, kind: str) -> None:
    made = decoder.decode(picture(60, 100, kind=kind))
    assert (made.width, made.height) == (4 * SIDE, 2 * SIDE)
    with Image.open(io.BytesIO(made.png)) as image:
        assert (image.format, image.mode, image.size) == ("PNG", "RGB", (made.width, made.height))


def test_an_image_of_the_right_size_keeps_its_pixels(decoder: Decoder) -> None:
    file = picture(2 * SIDE, 3 * SIDE)
    made = decoder.decode(file)
    before, after = (np.asarray(Image.open(io.BytesIO(each))) for each in (file, made.png))
    assert np.array_equal(before, after)
    assert decoder.decode(made.png) == made


@given(st.integers(1, 3000), st.integers(1, 3000))
def test_sizes_are_those_of_the_models_own_processor(width: int, height: int) -> None:
    if max(width, height) > 200 * min(width, height):
        return
    wide, high = worker.fitted(width, height, side=SIDE, fewest=SIDE**2, most=64 * SIDE**2)
    assert wide % SIDE == high % SIDE == 0
    if min(width, height) >= SIDE // 2 + 1:  # below, the processor's own size may be 0
        theirs = smart_resize(height, width, SIDE, SIDE**2, 64 * SIDE**2)
        assert (high, wide) == theirs
    if SIDE**2 <= wide * high <= 64 * SIDE**2:
        assert worker.fitted(wide, high, side=SIDE, fewest=SIDE**2, most=64 * SIDE**2) == (
            wide,
            high,
        )


def bomb() -> bytes:
    file = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (b"", "cannot identify image file"),
        (b"GIF89a" + b"\0" * 100, "cannot identify image file"),
        (picture(56, 56)[:-2000], "truncated|broken|incomplete"),
        (picture(56, 56)[:60], "truncated|broken|cannot identify|incomplete"),
        (bomb(), "has 20000 x 20000 pixels, more than 64000000"),
        (picture(2, 500), "more than 200 times as long"),
    ],
    ids=["nothing", "a GIF", "half", "a header", "a bomb", "a line"],
)
def test_a_bad_image_is_named_and_the_next_is_decoded(
    decoder: Decoder, file: bytes, why: str
) -> None:
    with pytest.raises(BadImageError, match=why):
        decoder.decode(file)
    assert decoder.decode(picture(56, 56)).width == 56


def test_a_worker_that_has_ended_between_images_costs_none_of_them(decoder: Decoder) -> None:
    decoder.decode(picture(56, 56))
    process = decoder._process
    assert process is not None
    process.kill()
    process.wait()
    assert decoder.decode(picture(56, 56)).width == 56


def test_an_image_that_ends_each_worker_is_bad(
    decoder: Decoder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ends = tmp_path / "ends.py"
    ends.write_text("import sys; sys.stdin.buffer.read(1)")
    decoder.close()
    with monkeypatch.context() as patched:
        patched.setattr(worker, "__file__", str(ends))
        with pytest.raises(BadImageError, match="its decoder ended"):
            decoder.decode(picture(56, 56))
    assert decoder.decode(picture(56, 56)).width == 56


ESCAPES = {
    "a file": "open('/proc/self/environ')",
    "the parent's environment": "open(f'/proc/{os.getppid()}/environ')",
    "a socket": "socket.socket()",
    "a file in place of standard input": "(os.close(0), open('/etc/hostname'))",
    "a higher limit": "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)) "
    "if os.getuid() else open('/etc/hostname')",
}


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES)
def test_code_in_the_worker_opens_nothing(escape: str) -> None:
    """What a decoder that an image has taken over could try."""
    program = (
        "import os, resource, socket, sys; sys.path.insert(0, sys.argv[1]); import worker\n"
        "worker._warm_up(); worker._give_up()\n"
        f"try:\n    {escape}\n"
        "except (OSError, ValueError) as error:\n    print(type(error).__name__)\n"
        "else:\n    print('open')"
    )
    folder = str(Path(worker.__file__).parent)
    answer = subprocess.run(
        [sys.executable, "-I", "-c", program, folder],
        capture_output=True,
        text=True,
        env={},
        check=True,
    )
    assert answer.stdout.strip() in ("OSError", "ValueError", "PermissionError")


def test_the_worker_has_no_environment(decoder: Decoder) -> None:
    os.environ["RL_TEST_SECRET"] = "hidden"
    try:
        made = Decoder(side=SIDE, fewest=1, most=SIDE**2)
        made.decode(picture(28, 28))
        assert made._process is not None
        assert Path(f"/proc/{made._process.pid}/environ").read_bytes() == b""
        made.close()
    finally:
        del os.environ["RL_TEST_SECRET"]
