"""Keys that are due later: of several wishes for one the earliest holds. Not for threads."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

K = TypeVar("K")


class Delays(Generic[K]):
    """Keys by when they are due, in seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._sequence = 0

    def add(self, key: K, due: float) -> None:
        """Ask for a key at a time, unless it comes earlier anyway."""
        if self._due.get(key, due + 1) <= due:
            return
        self._due[key] = due
        self._sequence += 1
        heapq.heappush(self._heap, (due, self._sequence, key))

    def drop(self, key: K) -> None:
        """Nobody asks for a key any more."""
        self._due.pop(key, None)

    def first(self) -> float | None:
        """When the next key is due; None when there is none."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self, now: float) -> tuple[K, float] | None:
        """A key that is due, and since when; None when there is none."""
        first = self.first()
        if first is None or first > now:
            return None
        due, _, key = heapq.heappop(self._heap)
        self.drop(key)
        return key, due
