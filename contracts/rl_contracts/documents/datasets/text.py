"""Streams JSON Lines and JSON arrays; holds at most a record and a chunk in memory."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from rl_contracts.documents.datasets.raw import RawRecord, UnreadableError

MAX_RECORD_BYTES = 16 << 20
"""A longer record would not fit into a task document."""
BOM = codecs.BOM_UTF8
WHITESPACE = " \t\r\n"
ENDS_EARLY = "the file ends within the array"


def read_text(chunks: Iterable[bytes]) -> Iterator[RawRecord]:
    """Yield records of a JSON array or of JSON Lines; the first character decides which.

    Args:
        chunks: the file's bytes, UTF-8.

    Raises:
        UnreadableError: an array is malformed, so its next record cannot be located.
    """
    stream = iter(chunks)
    first = b""
    for chunk in stream:
        first += chunk
        if len(first) > len(BOM) and first.removeprefix(BOM).lstrip():
            break
    start = first.removeprefix(BOM)
    read = read_array if start.lstrip().startswith(b"[") else read_lines
    yield from read(_chained(start, stream))


def _chained(start: bytes, stream: Iterable[bytes]) -> Iterator[bytes]:
    yield start
    yield from stream


def read_lines(chunks: Iterable[bytes]) -> Iterator[RawRecord]:
    """Yield records of JSON Lines; empty lines are skipped."""
    for number, line in enumerate(_lines(chunks), start=1):
        place = f"line {number}"
        if line is None:
            yield RawRecord(place=place, problem=f"is longer than {MAX_RECORD_BYTES} bytes")
        elif line.strip():
            yield _parsed(line, place)


def _parsed(line: bytes, place: str) -> RawRecord:
    try:
        return RawRecord(place=place, value=loads(line.decode()))
    except UnicodeDecodeError as error:
        return RawRecord(place=place, problem=f"is not UTF-8 at byte {error.start + 1}")
    except RecursionError:
        return RawRecord(place=place, problem="is nested too deeply")
    except ValueError as error:
        return RawRecord(place=place, problem=f"is not JSON: {error}")


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes | None]:
    """Yield lines without their line ends; None for a line that is too long."""
    parts: list[bytes] = []
    held, long = 0, False
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        for ended, piece in ((False, first), *((True, other) for other in others)):
            if ended:
                yield None if long else b"".join(parts)
                parts, held, long = [], 0, False
            held += len(piece)
            long = long or held > MAX_RECORD_BYTES
            if long:
                parts = []
            elif piece:
                parts.append(piece)
    if long or parts:
        yield None if long else b"".join(parts)


def read_array(chunks: Iterable[bytes]) -> Iterator[RawRecord]:
    """Yield the records of a JSON array; raises UnreadableError when it is malformed."""
    text = _Text(chunks)
    text.expect("[")
    if text.peek() != "]":
        yield text.record()
        while text.peek() == ",":
            text.expect(",")
            yield text.record()
    text.expect("]")
    if text.peek():
        raise UnreadableError(f"line {text.line}: unexpected text after the array")


class _Text:
    """Decoded text with a read position; decodes further chunks as needed."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._json = json.JSONDecoder(parse_constant=_no_number)
        self._buffer, self._at = "", 0
        self.line = 1
        self._begun = (0, 0)
        """The line on which the last record begins, and how many do so far."""

    def peek(self) -> str:
        """The next character that is not white space; empty at the end."""
        while True:
            start = self._at
            while self._at < len(self._buffer) and self._buffer[self._at] in WHITESPACE:
                self._at += 1
            self.line += self._buffer.count("\n", start, self._at)
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._fill():
                return ""

    def expect(self, character: str) -> None:
        """Consume ``character``; raises UnreadableError when it is not next."""
        following = self.peek()
        if following != character:
            seen = f"expected {character!r}, got {following!r}" if following else ENDS_EARLY
            raise UnreadableError(f"line {self.line}: {seen}")
        self._at += 1

    def record(self) -> RawRecord:
        """Consume the next value."""
        if not self.peek():
            raise UnreadableError(f"line {self.line}: {ENDS_EARLY}")
        place = self._place()
        while True:
            try:
                value, end = self._json.raw_decode(self._buffer, self._at)
            except json.JSONDecodeError as error:
                self._fill_or_fail(place, error)
                continue
            except RecursionError:
                raise UnreadableError(f"{place} is nested too deeply") from None
            except ValueError as error:
                raise UnreadableError(f"{place} is not JSON: {error}") from error
            # A number may continue in the next chunk; an object or list is complete.
            if end == len(self._buffer) and not isinstance(value, dict | list) and self._fill():
                continue
            break
        self.line += self._buffer.count("\n", self._at, end)
        self._at = end
        return RawRecord(place=place, value=value)

    def _place(self) -> str:
        """Place of the record that begins here; records of one line are counted."""
        line, count = self._begun
        count = count + 1 if line == self.line else 1
        self._begun = (self.line, count)
        return f"line {self.line}" if count == 1 else f"line {self.line}, record {count}"

    def _fill_or_fail(self, place: str, error: json.JSONDecodeError) -> None:
        if len(self._buffer) - self._at > MAX_RECORD_BYTES:
            raise UnreadableError(f"{place} is longer than {MAX_RECORD_BYTES} bytes") from error
        if not self._fill():
            raise UnreadableError(f"{place} is not JSON: {error.msg}") from error

    def _fill(self) -> bool:
        chunk = next(self._chunks, None)
        try:
            more = self._decoder.decode(chunk or b"", final=chunk is None)
        except UnicodeDecodeError as error:
            raise UnreadableError(f"not UTF-8 after line {self.line}") from error
        self._buffer, self._at = self._buffer[self._at :] + more, 0
        return chunk is not None


def loads(text: str) -> Any:
    """Parse JSON; raises ValueError for invalid JSON, ``NaN`` and infinities."""
    return json.loads(text, parse_constant=_no_number)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
