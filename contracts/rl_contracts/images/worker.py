"""Decodes images; a program of its own, because what it reads is not trusted.

It is started with an empty environment. Before it reads the first image it gives up opening files
and sockets and starting processes, and its memory and processor time are limited: a decoder that an
image has taken over can only write other pixels to its standard output.

In: a header of five unsigned integers (length, side, fewest pixels, most pixels, most pixels of the
file) and the file. Out: a letter, width, height and length, then the pixels (``R``: rows of RGB) or
a text (``E``: what is wrong with the image).
"""

from __future__ import annotations

import io
import math
import resource
import struct
import sys
import warnings

REQUEST, ANSWER = struct.Struct("<IIIII"), struct.Struct("<cIII")
FORMATS = ("JPEG", "PNG", "WEBP")
BAD = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
)
"""What decoders raise for a bad file; after anything else the program ends."""
MEMORY_BYTES = 2 << 30
CPU_SECONDS = 600
LONGEST_SIDE_RATIO = 200


def main() -> None:
    """Answer requests until the input ends."""
    _warm_up()
    _give_up()
    warnings.simplefilter("ignore")
    read, write = sys.stdin.buffer.read, sys.stdout.buffer
    while header := read(REQUEST.size):
        length, side, fewest, most, of_file = REQUEST.unpack(header)
        file = read(length)
        try:
            kind, size, body = b"R", *_pixels(file, side, fewest, most, of_file)
        except BAD as error:
            text = " ".join(str(error).split()) or type(error).__name__
            kind, size, body = b"E", (0, 0), text[:300].encode()
        write.write(ANSWER.pack(kind, *size, len(body)) + body)
        write.flush()


def _warm_up() -> None:
    """Decode and resize once, so that nothing has to be opened or imported later."""
    from PIL import Image  # not where this module is only read: few programs have it

    Image.MAX_IMAGE_PIXELS = None  # each request has a limit of its own
    Image.init()
    for kind in FORMATS:
        file = io.BytesIO()
        Image.new("RGB", (8, 8)).save(file, kind)
        _pixels(file.getvalue(), 4, 16, 64, 64)


def _give_up() -> None:
    for what, most in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, 0),
    ):
        resource.setrlimit(what, (most, most))


def _pixels(
    file: bytes, side: int, fewest: int, most: int, of_file: int
) -> tuple[tuple[int, int], bytes]:
    from PIL import Image, ImageOps

    image: Image.Image = Image.open(io.BytesIO(file), formats=FORMATS)
    width, height = image.size
    if not width or not height or width * height > of_file:
        raise ValueError(f"has {width} x {height} pixels, more than {of_file}")
    if max(width, height) > LONGEST_SIDE_RATIO * min(width, height):
        raise ValueError(f"is {width} x {height}, more than {LONGEST_SIDE_RATIO} times as long")
    image = ImageOps.exif_transpose(image).convert("RGB")
    width, height = fitted(*image.size, side=side, fewest=fewest, most=most)
    if (width, height) != image.size:
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    return (width, height), image.tobytes()


def fitted(width: int, height: int, *, side: int, fewest: int, most: int) -> tuple[int, int]:
    """Width and height as multiples of ``side`` with from ``fewest`` to ``most`` pixels.

    The formula of Qwen2-VL's processor (``smart_resize``), which leaves its own results alone.
    """
    wide, high = (max(side, round(each / side) * side) for each in (width, height))
    if wide * high > most:
        scale = math.sqrt(width * height / most)
        wide, high = (max(side, int(each / scale / side) * side) for each in (width, height))
    elif wide * high < fewest:
        scale = math.sqrt(fewest / (width * height))
        wide, high = (math.ceil(each * scale / side) * side for each in (width, height))
    return wide, high


if __name__ == "__main__":
    main()
