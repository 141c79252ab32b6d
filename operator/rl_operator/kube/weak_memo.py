"""What is made of a value that nobody changes, made once for as long as somebody holds the value.

Specs are parsed once for many looks, each of which would derive the same of them again. They are
told apart by identity: they cannot be hashed, and to compare two takes as long as to begin anew.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")
T = TypeVar("T")


class WeakMemo(Generic[V, T]):
    """A pure function of values that do not change. For any thread: one may make it in vain."""

    def __init__(self, make: Callable[[V], T]) -> None:
        self._make = make
        self._made: dict[int, tuple[weakref.ref[V], T]] = {}
        """By the identity of the value, which another one may have after its end."""

    def __call__(self, value: V) -> T:
        """What is made of it."""
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
