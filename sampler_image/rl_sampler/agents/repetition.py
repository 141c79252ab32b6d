"""Notices a policy that goes round in circles."""

from __future__ import annotations


class Repetition:
    """Counts responses that repeat an earlier one of the episode."""

    def __init__(self, *, limit: int) -> None:
        """Begin; ``limit`` repeated responses are too many."""
        self._limit = limit
        self._seen: set[str] = set()
        self.count = 0

    def note(self, response: str) -> bool:
        """Take in a response's text; True where it repeats an earlier one."""
        key = " ".join(response.split())
        repeats = key in self._seen
        self._seen.add(key)
        self.count += repeats
        return repeats

    @property
    def too_many(self) -> bool:
        """Whether the episode should end."""
        return self.count >= self._limit
