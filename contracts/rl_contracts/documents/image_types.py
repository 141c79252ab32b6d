"""Which image a file is, by its first bytes. Pure."""

from __future__ import annotations

PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"


def image_type(file: bytes) -> str | None:
    """``image/png``, ``image/jpeg`` or ``image/webp``; None for any other file, SVG among them.

    The signatures are those of https://mimesniff.spec.whatwg.org, section 6.1.
    """
    if file.startswith(PNG):
        return "image/png"
    if file.startswith(JPEG):
        return "image/jpeg"
    if file.startswith(b"RIFF") and file[8:14] == b"WEBPVP":
        return "image/webp"
    return None
