"""Places for live pages: a bounded number, and none of it to one viewer alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

MOST_STREAMS = 128
"""Of a process. Each looks at a run every few seconds."""


@dataclass(eq=False, slots=True)
class Stream:
    """A live page."""

    viewer: str
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its place is given to another viewer."""


class Streams:
    """The live pages of a process; used on its event loop alone.

    Where all places are taken, a viewer with fewer pages gets the place of the oldest page of the
    viewer with the most. So many pages of one viewer keep nobody else out.
    """

    def __init__(self, most: int = MOST_STREAMS) -> None:
        """No page is live; ``most`` can be."""
        self._most = most
        self._open: list[Stream] = []  # the oldest first

    def has_place(self, viewer: str) -> bool:
        """Whether a page of this viewer can be live."""
        return len(self._open) < self._most or self._yielding(viewer) is not None

    def take(self, viewer: str) -> Stream | None:
        """A place for a page of this viewer; None where there is none."""
        if len(self._open) >= self._most:
            yielding = self._yielding(viewer)
            if yielding is None:
                return None
            yielding.over.set()
            self.leave(yielding)
        stream = Stream(viewer)
        self._open.append(stream)
        return stream

    def leave(self, stream: Stream) -> None:
        """Give a place back."""
        if stream in self._open:
            self._open.remove(stream)

    def end(self) -> None:
        """End all live pages, and let none in."""
        self._most = 0
        for stream in self._open:
            stream.over.set()

    def _yielding(self, viewer: str) -> Stream | None:
        """The page that gives its place to this viewer's; None: all others have as few."""
        if not self._open:
            return None
        counts = Counter(each.viewer for each in self._open)
        ((busiest, most),) = counts.most_common(1)
        if most <= counts[viewer] + 1:
            return None
        return next(each for each in self._open if each.viewer == busiest)
