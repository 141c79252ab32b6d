"""Spans of a file whose digests are compared while it is downloaded. Pure."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rl_contracts.documents.manifest import DTYPE_BYTES, FileEntry, Manifest
from rl_contracts.errors import IntegrityError


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes [begin, end) of a file."""

    begin: int
    end: int
    sha256: str = ""
    """Of these bytes; empty where it is unknown."""
    name: str = ""
    """Describes the bytes in messages."""


def spans_of(entry: FileEntry, manifest: Manifest | None) -> list[Span]:
    """A file's spans, in order and without gaps.

    Args:
        entry: the file.
        manifest: with the digests of the file's tensors; None where no manifest has them.
    """
    whole = Span(0, entry.size_bytes, entry.sha256, "the file")
    if entry.sha256 or manifest is None or not entry.header_sha256:
        return [whole]
    tensors = [tensor for tensor in manifest.tensors if tensor.file == entry.name]
    sizes = [DTYPE_BYTES.get(tensor.dtype, 0) * math.prod(tensor.shape) for tensor in tensors]
    end = entry.size_bytes - sum(sizes)
    spans = [Span(0, end, entry.header_sha256, "the header")]
    for tensor, size in zip(tensors, sizes, strict=True):
        begin, end = end, end + size
        spans.append(Span(begin, end, tensor.sha256, tensor.name))
    return spans


def segments(spans: Iterable[Span], *, size_bytes: int) -> list[list[Span]]:
    """Group adjacent spans to segments of at least ``size_bytes``.

    A span without a digest may be cut; a span with a digest is kept whole.
    """
    grouped: list[list[Span]] = []
    filled = size_bytes
    for span in spans:
        pieces = [span] if span.sha256 else _cut(span, size_bytes)
        for piece in pieces:
            if filled >= size_bytes:
                grouped.append([])
                filled = 0
            grouped[-1].append(piece)
            filled += piece.end - piece.begin
    return grouped


def _cut(span: Span, size_bytes: int) -> list[Span]:
    return [
        Span(begin, min(begin + size_bytes, span.end), "", span.name)
        for begin in range(span.begin, span.end, size_bytes)
    ]


class DigestChecker:
    """Compares the digests of adjacent spans while their bytes are read in order."""

    def __init__(self, file: str, spans: Sequence[Span]) -> None:
        """Start before the first byte of the first span.

        Args:
            file: name of the file, for messages.
            spans: adjacent spans, in order.
        """
        self._file, self._spans = file, list(reversed(spans))
        self._digest, self._left = hashlib.sha256(), 0
        self._next()

    def update(self, chunk: bytes) -> None:
        """Add the next bytes.

        Raises:
            IntegrityError: the digest of a span that ends in these bytes does not match.
        """
        view = memoryview(chunk)
        while view:
            part, view = view[: self._left], view[self._left :]
            if self._spans[-1].sha256:
                self._digest.update(part)
            self._left -= len(part)
            if not self._left:
                self._end()
                self._next()

    def _next(self) -> None:
        while self._spans:
            self._digest = hashlib.sha256()
            self._left = self._spans[-1].end - self._spans[-1].begin
            if self._left:
                return
            self._end()

    def _end(self) -> None:
        span = self._spans.pop()
        digest = self._digest.hexdigest()
        if span.sha256 and digest != span.sha256:
            what = f"{self._file}: {span.name} has digest {digest}"
            raise IntegrityError(f"{what}, the manifest says {span.sha256}")
