"""Memoizes a function of immutable objects by identity, for as long as the object is alive.

A spec is parsed once for many reconciles, each of which derives the same values from it. Specs are
told apart by identity: they cannot be hashed, and comparing two costs as much as deriving again.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")
T = TypeVar("T")


class WeakMemo(Generic[V, T]):
    """A memoized pure function. For any thread; two threads may compute the same value."""

    def __init__(self, make: Callable[[V], T]) -> None:
        self._make = make
        self._made: dict[int, tuple[weakref.ref[V], T]] = {}
        """By identity, which another object may get after the end of this one."""

    def __call__(self, value: V) -> T:
        """The function's result."""
        known = self._made.get(id(value))
        if known is not None and known[0]() is value:
            return known[1]
        made = self._make(value)
        forget = functools.partial(self._forget, id(value))
        self._made[id(value)] = (weakref.ref(value, forget), made)
        return made

    def __len__(self) -> int:
        return len(self._made)

    def _forget(self, identity: int, ended: weakref.ref[V]) -> None:
        known = self._made.get(identity)
        if known is not None and known[0] is ended:
            self._made.pop(identity, None)
