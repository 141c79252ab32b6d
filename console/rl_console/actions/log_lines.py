"""Lines of logs from streams of bytes; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rl_console.plain_text import plain

LONGEST = 16_384
"""Bytes of one line that are shown."""


def lines_of(chunks: Iterable[bytes], *, longest: int = LONGEST) -> Iterator[str]:
    """Lines as plain text, without their ends; what cannot be decoded is written out.

    A line that is too long is cut, however long it is: not more than ``longest`` bytes and one
    chunk are held.

    Args:
        chunks: of a log.
        longest: bytes of a line to show.
    """
    held, dropped = b"", 0
    for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            yield _shown(held + piece, dropped, longest)
            held, dropped = b"", 0
        held += rest
        if len(held) > longest:
            dropped += len(held) - longest
            held = held[:longest]
    if held or dropped:
        yield _shown(held, dropped, longest)


def _shown(line: bytes, dropped: int, longest: int) -> str:
    over = max(0, len(line) - longest) + dropped
    text = plain(line[:longest].decode(errors="backslashreplace").rstrip("\r"))
    return f"{text}… [{over:,} more bytes]" if over else text
