"""Has images decoded by ``worker``, and makes files of the pixels that it answers."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from rl_contracts.errors import RLError
from rl_contracts.images import worker
from rl_contracts.images.worker import ANSWER, REQUEST

Answer = tuple[bytes, int, int, bytes]
"""Kind, width, height and content."""
SECONDS = 20.0
"""For one image; then the worker is ended, and the image is bad."""
MOST_PIXELS = 64_000_000
"""Of a file, before it is scaled down."""


class BadImageError(RLError):
    """An image cannot be shown; the message ends a sentence about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """An image in the size in which a model sees it."""

    width: int
    height: int
    png: bytes


class Decoder:
    """Starts the worker when it is first needed, and again after it has ended. Thread-safe."""

    def __init__(self, *, side: int, fewest: int, most: int) -> None:
        """Make a decoder.

        Args:
            side: width and height become multiples of it.
            fewest: pixels of an image.
            most: the same.
        """
        self._sizes = side, fewest, most, MOST_PIXELS
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def decode(self, file: bytes) -> Decoded:
        """Decode a file of JPEG, PNG or WebP; raises BadImageError."""
        with self._lock:
            kind, width, height, body = self._ask(file)
        if kind != b"R":
            raise BadImageError(f"cannot be shown: {body.decode(errors='replace')}")
        side = self._sizes[0]
        if len(body) != 3 * width * height or width % side or height % side or not body:
            raise BadImageError("cannot be shown: its decoder gave no image")
        return Decoded(width=width, height=height, png=_png(width, height, body))

    def close(self) -> None:
        """End the worker."""
        with self._lock:
            self._end()

    def _ask(self, file: bytes) -> Answer:
        """Asks a new worker if one that has decoded others ends: all share its processor time."""
        served = self._process is not None
        answer = self._exchange(file)
        if answer is None and served:
            answer = self._exchange(file)
        if answer is None:
            raise BadImageError(
                f"cannot be shown: its decoder ended, or took more than {SECONDS:g} s"
            )
        return answer

    def _exchange(self, file: bytes) -> Answer | None:
        """The worker's answer; None where it has ended, or was ended."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        watch = threading.Timer(SECONDS, process.kill)
        watch.start()
        try:
            process.stdin.write(REQUEST.pack(len(file), *self._sizes) + file)
            process.stdin.flush()
            header = process.stdout.read(ANSWER.size)
            if len(header) == ANSWER.size:
                kind, width, height, length = ANSWER.unpack(header)
                if length <= 3 * max(self._sizes[2], self._sizes[0] ** 2) * 2:
                    body = process.stdout.read(length)
                    if len(body) == length:
                        return kind, width, height, body
        except OSError:
            pass  # it has ended
        finally:
            watch.cancel()
        self._end()
        return None

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(Path(worker.__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            close_fds=True,
        )
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def _png(width: int, height: int, pixels: bytes) -> bytes:
    from PIL import Image  # only programs that show images have it

    file = io.BytesIO()
    Image.frombytes("RGB", (width, height), pixels).save(file, "PNG", compress_level=1)
    return file.getvalue()
