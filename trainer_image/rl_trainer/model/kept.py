"""Keeps values up to a number of bytes; the longest unused ones go first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")


class Kept(Generic[V]):
    """Values by name. At least the one that was used last is kept."""

    def __init__(self, most_bytes: int, size: Callable[[V], int]) -> None:
        """Keep nothing yet.

        Args:
            most_bytes: of all values.
            size: bytes of a value.
        """
        self._most, self._size = most_bytes, size
        self._values: OrderedDict[str, V] = OrderedDict()
        self._held = 0

    def get(self, name: str, make: Callable[[], V]) -> V:
        """A value, made where it is not kept; raises what ``make`` raises."""
        if name not in self._values:
            value = self._values[name] = make()
            self._held += self._size(value)
            while self._held > self._most and len(self._values) > 1:
                _, dropped = self._values.popitem(last=False)
                self._held -= self._size(dropped)
        self._values.move_to_end(name)
        return self._values[name]
