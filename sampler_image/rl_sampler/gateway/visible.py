"""The text of a response that grows token by token, and how much of it may be sent already."""

from __future__ import annotations

from collections.abc import Callable, Sequence

INCOMPLETE = "\ufffd"


def settled(text: str, marks: Sequence[str], *, since: int = 0) -> int:
    """Length of the text before the first mark, or before what may become a mark.

    Args:
        text: of the response until now.
        marks: texts that end what may be sent: of tool calls, and stop texts.
        since: length that is known to be before all marks.
    """
    length = len(text)
    for mark in marks:
        at = text.find(mark, since)
        if at >= 0:
            length = min(length, at)
            continue
        for size in range(min(len(mark) - 1, len(text) - since), 0, -1):
            if text.endswith(mark[:size]):
                length = min(length, len(text) - size)
                break
    return length


class GrowingText:
    """Decodes a response while it grows.

    Each step decodes the last few tokens only. Characters whose bytes are in several tokens come
    with the last of these.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], marks: Sequence[str]) -> None:
        """Begin a response.

        Args:
            decode: token ids to text, without the token that ends a turn.
            marks: as ``settled``.
        """
        self._decode, self._marks = decode, marks
        self._tokens: list[int] = []
        self._from = self._read = 0
        self._text = ""
        self.sent = 0
        """Characters that were given out."""

    def grow(self, tokens: Sequence[int]) -> str:
        """Add tokens; returns the text that may be sent now."""
        self._tokens += tokens
        before = self._decode(self._tokens[self._from : self._read])
        now = self._decode(self._tokens[self._from :])
        if len(now) > len(before) and not now.endswith(INCOMPLETE):
            self._text += now[len(before) :]
            self._from, self._read = self._read, len(self._tokens)
        return self._take(settled(self._text, self._marks, since=self.sent))

    @property
    def length(self) -> int:
        """Number of tokens."""
        return len(self._tokens)

    def finish(self, text: str) -> str:
        """The rest, once the whole visible text is known."""
        rest = text[self.sent :]
        self.sent = len(text)
        return rest

    def _take(self, length: int) -> str:
        if length <= self.sent:
            return ""
        taken = self._text[self.sent : length]
        self.sent = length
        return taken
